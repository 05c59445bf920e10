"""The namespaces of a node: which there are, with which keys, and what a configuration puts there.

Those that the catalog has and the configuration does not mention are served as well: what a file
does not mention is left alone.
"""

from __future__ import annotations

import os
from functools import partial

from busway.cluster import declared
from busway.cluster.catalogs import Catalogs
from busway.cluster.namespace_access import KeepKeys
from busway.cluster.served_at import ServedAt
from busway.config.namespaces import DeclaredNamespace
from busway.model.access import fresh_key
from busway.model.entities import DEFAULT_NAMESPACE, ROOT_RULE_NAME
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

    @property
    def keys(self) -> dict[str, str]:
        """The primary key of the root rule of each namespace, by name; the default one first."""
        return {
            catalog.namespace.name: catalog.access.existing(ROOT_RULE_NAME).primary_key
            for catalog in self._catalogs
        }

    def open(self, now_ms: int) -> None:
        """Raises `CatalogError` for one that is there and is not as the configuration says."""
        for each in self._declared.values():
            self._catalogs.namespace(
                each.name, tier=each.tier, partitions=each.partitions, now_ms=now_ms
            )
        for catalog in self._catalogs:
            name = catalog.namespace.name
            wanted = self._declared.get(name_key(name))
            if wanted and wanted.key:
                catalog.set_root_key(wanted.key)
            else:
                catalog.set_root_key(*self._own_keys(name), keep=self._keep(name))

    def furnish(self, now_ms: int) -> None:
        """Access rules and entities; raises `ConfigError`, before anything is changed if it can."""
        wanted = [(each, self._catalogs.namespace(each.name)) for each in self._declared.values()]
        for each, catalog in wanted:
            declared.check(each.entities, catalog)
        for each, catalog in wanted:
            declared.apply_access(each.access, catalog, now_ms)
            declared.apply(each.entities, catalog, now_ms)

    @property
    def hosts(self) -> dict[str, str]:
        """The namespaces that listed host names mean."""
        return {host: each.name for each in self._declared.values() for host in each.hosts}

    def served_at(self, machine: str, port: int, tls: bool) -> ServedAt:
        names = [catalog.namespace.name for catalog in self._catalogs]
        given = [name for name in names if getattr(self._declared.get(name_key(name)), "key", None)]
        hosts = {name: self.host_of(name, machine) for name in names}
        return ServedAt(port, tls, hosts, tuple(given))

    def host_of(self, name: str, machine: str) -> str:
        """How clients reach a namespace, if they reach the default one as `machine`."""
        if name == DEFAULT_NAMESPACE:
            return machine
        wanted = self._declared.get(name_key(name))
        return wanted.hosts[0] if wanted and wanted.hosts else f"{name}.{machine}"

    def _own_keys(self, name: str) -> tuple[str, str | None]:
        if self._folder is None:
            return fresh_key(os.urandom), None
        return self._folder.root_keys(_in_folder(name))

    def _keep(self, name: str) -> KeepKeys:
        if self._folder is None:
            return lambda primary, secondary: None
        return partial(self._folder.keep_root_keys, _in_folder(name))


def _in_folder(name: str) -> str | None:
    """The key of the default namespace is in the file without a name."""
    return None if name == DEFAULT_NAMESPACE else name
