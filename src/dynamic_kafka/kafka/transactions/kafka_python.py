"""The parts of kafka-python that are used: requests, error codes and SASL mechanisms.

Import this module inside functions: it takes 0.15 s. kafka-python's network loop is not used (see `connection`), nor any of
its names with an underscore.
"""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # It reads its schemas by a function that Python 3.11 and 3.12 call deprecated (3.13 does not any more).
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.errors import AuthorizationError, IncompatibleBrokerVersion, for_code
    from kafka.net.sasl import get_sasl_mechanism
    from kafka.net.sasl.oauth import AbstractTokenProvider
    from kafka.protocol.admin import (
        DescribeConfigsRequest,
        DescribeQuorumRequest,
        DescribeTransactionsRequest,
        ListTransactionsRequest,
    )
    from kafka.protocol.broker_version_data import BrokerVersionData
    from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
    from kafka.protocol.producer.transaction import EndTxnRequest
    from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

__all__ = [
    "AbstractTokenProvider",
    "ApiVersionsRequest",
    "AuthorizationError",
    "BrokerVersionData",
    "DescribeConfigsRequest",
    "DescribeQuorumRequest",
    "DescribeTransactionsRequest",
    "EndTxnRequest",
    "FindCoordinatorRequest",
    "IncompatibleBrokerVersion",
    "ListTransactionsRequest",
    "MetadataRequest",
    "SaslAuthenticateRequest",
    "SaslHandshakeRequest",
    "for_code",
    "get_sasl_mechanism",
]
