"""Settings of the storage of files: the data folder, or an S3 bucket."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Any

from project.environment.configuration_error import ConfigurationError
from project.environment.variables import Environment

LIBRARIES = ("storages", "boto3")  # what the extra `s3` installs
_DISK = {"BACKEND": "django.core.files.storage.FileSystemStorage"}
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")
_KEY, _SECRET = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"


def read_file_storage(env: Environment) -> dict[str, Any]:
    """What Django's STORAGES has for files that people upload.

    The library finds the credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a
    profile, or the role of the machine.
    """
    bucket = env.text("S3_BUCKET", "").strip()
    options = {
        "endpoint_url": env.url("S3_ENDPOINT_URL"),
        "region_name": env.text("S3_REGION", "").strip(),
        "location": env.text("S3_PREFIX", "").strip().strip("/"),
    }
    style = env.choice("S3_ADDRESSING_STYLE", "auto", ["auto", "path", "virtual"])
    has_key, has_secret = bool(env.text(_KEY, "")), bool(env.text(_SECRET, ""))
    prefix = options["location"]
    if prefix and (not _PREFIX.fullmatch(prefix) or ".." in prefix):
        raise ConfigurationError(
            "S3_PREFIX", f"{prefix!r} is not a prefix; write words/with/slashes."
        )
    if not bucket:
        if any(options.values()):
            raise ConfigurationError(
                "S3_BUCKET", "it is missing; set it, or unset the other S3_ variables."
            )
        return _DISK
    if not _BUCKET.fullmatch(bucket):
        raise ConfigurationError("S3_BUCKET", f"{bucket!r} is not a bucket's name.")
    if has_key != has_secret:
        missing, other = (_SECRET, _KEY) if has_key else (_KEY, _SECRET)
        raise ConfigurationError(missing, f"it is missing, and {other} is set.")
    if not all(find_spec(name) for name in LIBRARIES):
        raise ConfigurationError(
            "S3_BUCKET",
            "S3 needs more libraries; install the extra 's3' of Parley's wheel.",
        )
    return {
        "BACKEND": "conversations.turns.s3_storage.S3FileStorage",
        "OPTIONS": {
            "bucket_name": bucket,
            "addressing_style": style,
            **{name: value or None for name, value in options.items()},
            "location": prefix,
        },
    }
