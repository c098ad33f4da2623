"""A server on this machine that speaks as S3 does."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError

from millrace.services.process import free_port

KEYS = ("AKIAEXAMPLE0000TEST", "not/a+key/of-anybody/0123456789")
BUCKET = "runs"
_PATIENCE = 30.0


class Bucket:
    """Moto's server, with one bucket; nothing is kept."""

    def __init__(self) -> None:
        port = free_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEYS[0],
            aws_secret_access_key=KEYS[1],
        )
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                self.client.create_bucket(Bucket=BUCKET)
                return
            except BotoCoreError:
                assert self._process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def put(self, key: str, content: str) -> None:
        """An object."""
        self.client.put_object(Bucket=BUCKET, Key=key, Body=content.encode())

    def keys(self, prefix: str) -> list[str]:
        """Of the objects under a prefix."""
        found = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [one["Key"] for page in found for one in page.get("Contents", ())]

    @property
    def settings(self) -> dict[str, str]:
        """How Spark reaches it."""
        return {
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
            "spark.hadoop.fs.s3a.access.key": KEYS[0],
            "spark.hadoop.fs.s3a.secret.key": KEYS[1],
        }

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(10)
        self.client.close()
