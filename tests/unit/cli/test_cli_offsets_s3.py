"""`dynamic-kafka offsets` on a checkpoint in S3, by a server of moto."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.unit.cli.test_cli_offsets import FIRST, QUERY, SECOND, offset_file

from dynamic_kafka.cli.main import main
from dynamic_kafka.files import open_files
from dynamic_kafka.source.document.offsets import Document, decode

moto = pytest.importorskip("moto.server", reason="moto is not installed")
boto3 = pytest.importorskip("boto3")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The address of a server with the bucket `bucket`."""
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A checkpoint of two finished batches, as a key of the bucket."""
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "hunter2-SECRET",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    client.create_bucket(Bucket="bucket")
    texts = {"metadata": json.dumps({"id": QUERY})}
    for number, document in enumerate((FIRST, SECOND)):
        texts |= {f"offsets/{number}": offset_file(document), f"commits/{number}": 'v1\n{"nextBatchWatermarkMs":9}'}
    for path, text in texts.items():
        client.put_object(Bucket="bucket", Key=f"checkpoints/q/{path}", Body=text.encode())
    yield "checkpoints/q"
    for found in client.list_objects_v2(Bucket="bucket")["Contents"]:
        client.delete_object(Bucket="bucket", Key=found["Key"])


def changed(location: str) -> Document:
    """The document of the batch that a change has made."""
    return decode(json.loads(open_files(location).read("offsets/2").split("\n")[2]))


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_checkpoint_in_s3(s3: str, scheme: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is shown, changed, and the change is taken back, by both of its names."""
    location = f"{scheme}://bucket/{s3}"
    assert main(["offsets", "show", location]) == 0
    assert "Batch 1 is finished" in capsys.readouterr().out
    assert main(["offsets", "set", location, "eu/orders/0:3", "--execute", "--force"]) == 0
    assert f"delete {location}/offsets/2" in capsys.readouterr().out
    assert dict(changed(location).clusters["eu"].ranges) == {("orders", 0): (3, 3), ("orders", 1): (20, 20)}
    assert main(["offsets", "set", location, "eu/orders/0:4", "--execute", "--force"]) == 0
    assert dict(changed(location).clusters["eu"].ranges) == {("orders", 0): (4, 4), ("orders", 1): (20, 20)}
    assert not open_files(location).create("offsets/2", "another")


def test_what_is_missing_in_s3(s3: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the address, and never the credentials."""
    assert main(["offsets", "show", f"s3a://bucket/{s3}x"]) == 1
    assert f"s3a://bucket/{s3}x is not a checkpoint" in capsys.readouterr().err
    assert main(["offsets", "show", "s3a://nowhere/x"]) == 1
    error = capsys.readouterr().err
    assert "s3a://nowhere/x" in error
    assert "hunter2" not in error
