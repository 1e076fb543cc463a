"""An archive in S3, by a server of moto: written, compacted, read as a history, deleted."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pytest
from tests.unit.history.test_archive import Folder, small_files
from tests.unit.history.test_history_files import frozen, offsets, read

from dynamic_kafka import archive

moto = pytest.importorskip("moto.server", reason="moto is not installed")
boto3 = pytest.importorskip("boto3")

pytestmark = pytest.mark.slow


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of a server."""
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1")
    client.create_bucket(Bucket="bucket")
    yield "s3a://bucket"
    server.stop()


def test_an_archive_in_s3(bucket: str) -> None:
    """As on a disk: each record once before and after a compaction, and as a history."""
    folder = Folder(f"{bucket}/archives/orders")
    before = small_files(folder)
    begun = frozen(folder.path)
    done = archive.compact(folder.path, before=dt.date(2013, 1, 3))
    assert done.days == {"2013-01-01": 4, "2013-01-02": 4}
    assert folder.records() == before
    assert archive.verify(folder.path).is_sound
    assert len(offsets(read(begun))) == len(offsets(read(frozen(folder.path)))) == len(before)
    assert archive.compact(folder.path, keep=dt.timedelta(0)).deleted == 12
    assert folder.files() == folder.state().files.keys()
    folder.write({0: (55, 61)}, [])
    assert folder.records() == before
