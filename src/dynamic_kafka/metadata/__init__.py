"""What should be read: streams, the clusters and topics they live on, and the service that knows."""
