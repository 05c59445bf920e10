"""The namespaces of a node: which there are, with which keys, and what a configuration puts there.

Those that the catalog has and the configuration does not mention are served as well: what a file
does not mention is left alone.
"""

from __future__ import annotations

import base64
import os

from busway.cluster import declared
from busway.cluster.catalogs import Catalogs
from busway.cluster.root_key import KEY_BYTES
from busway.config.namespaces import DeclaredNamespace
from busway.model.entities import DEFAULT_NAMESPACE
from busway.model.names import name_key
from busway.runtime.data_folder import DataFolder


class Tenants:
    """`open` them before the stores; `furnish` them when there are stores to place entities on."""

    def __init__(
        self, wanted: tuple[DeclaredNamespace, ...], catalogs: Catalogs, folder: DataFolder | None
    ) -> None:
        self._declared = {name_key(each.name): each for each in wanted}
        self._catalogs = catalogs
        self._folder = folder
        self.keys: dict[str, str] = {}
        """Of the root rule of each namespace, by name; the default one first."""

    def open(self, now_ms: int) -> None:
        """Raises `CatalogError` for one that is there and is not as the configuration says."""
        for each in self._declared.values():
            self._catalogs.namespace(
                each.name, tier=each.tier, partitions=each.partitions, now_ms=now_ms
            )
        for catalog in self._catalogs:
            name = catalog.namespace.name
            wanted = self._declared.get(name_key(name))
            keys = (wanted.key, None) if wanted and wanted.key else self._own_keys(name)
            catalog.set_root_key(*keys)
            self.keys[name] = keys[0]

    def furnish(self, now_ms: int) -> None:
        """Access rules and entities; raises `ConfigError`, before anything is changed if it can."""
        wanted = [(each, self._catalogs.namespace(each.name)) for each in self._declared.values()]
        for each, catalog in wanted:
            declared.check(each.entities, catalog)
        for each, catalog in wanted:
            if each.access:
                declared.apply_access(each.access, catalog, now_ms)
            declared.apply(each.entities, catalog, now_ms)

    @property
    def hosts(self) -> dict[str, str]:
        """The namespaces that listed host names mean."""
        return {host: each.name for each in self._declared.values() for host in each.hosts}

    def host_of(self, name: str, machine: str) -> str:
        """How clients reach a namespace, if they reach the default one as `machine`."""
        if name == DEFAULT_NAMESPACE:
            return machine
        wanted = self._declared.get(name_key(name))
        return wanted.hosts[0] if wanted and wanted.hosts else f"{name}.{machine}"

    def _own_keys(self, name: str) -> tuple[str, str | None]:
        if self._folder is None:
            return base64.b64encode(os.urandom(KEY_BYTES)).decode(), None
        return self._folder.root_keys(None if name == DEFAULT_NAMESPACE else name)
