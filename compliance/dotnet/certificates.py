"""Servers that tests start themselves have the certificate of the suite's server.

`SSL_CERT_FILE`, which the runtime read when it started, trusts one authority only.
"""

from __future__ import annotations

import os
from pathlib import Path


def tls_arguments() -> list[str]:
    """Arguments of `busway serve`; both files lie beside the authority's."""
    folder = Path(os.environ["SSL_CERT_FILE"]).parent
    return ["--tls-cert", str(folder / "server.pem"), "--tls-key", str(folder / "server.key")]
