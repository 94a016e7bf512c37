"""The decorator `frozen`, for classes that only hold values."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, fields, make_dataclass
from operator import attrgetter
from typing import Any, TypeVar, cast, dataclass_transform, overload

T = TypeVar("T")


@overload
def frozen(cls: type[T], /) -> type[T]: ...
@overload
def frozen(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T] | None = None, /, *, kw_only: bool = False) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a class a dataclass with slots that is compared and hashed by its values. The type checker forbids changes
    of its fields.

    `@dataclass(frozen=True)` compiles six functions for each class, which took a quarter of the time of `hivemind
    status`, and calls a function for each field of a new object. This decorator compiles one function, which sets the
    fields directly, and only for the first object: a command makes objects of few of the classes that it imports.
    """

    def make(cls: type[T]) -> type[T]:
        cls.__doc__ = cls.__doc__ or cls.__name__  # else `dataclass` makes a text of the signature
        dataclass_type: Any = dataclass(slots=True, init=False, repr=False, eq=False, kw_only=kw_only)(cls)
        dataclass_type.__init__ = _Init(dataclass_type)
        shown_names = [attribute.name for attribute in fields(dataclass_type) if attribute.repr]
        compared_names = [attribute.name for attribute in fields(dataclass_type) if attribute.compare]
        compared_values = attrgetter(*compared_names) if compared_names else type

        def represent(self: T) -> str:
            return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown_names)})"

        def equal(self: T, other: object) -> bool:
            return compared_values(self) == compared_values(other) if type(other) is type(self) else NotImplemented

        def hash_values(self: T) -> int:
            return hash(compared_values(self))

        for name, method in (("__repr__", represent), ("__eq__", equal), ("__hash__", hash_values)):
            if name not in cls.__dict__:
                setattr(dataclass_type, name, method)
        return cast("type[T]", dataclass_type)

    return make if cls is None else make(cls)


class _Init:
    """The function `__init__` of a class, compiled when it is first looked up."""

    def __init__(self, dataclass_type: Any) -> None:
        self._dataclass_type = dataclass_type

    def __get__(self, instance: object, _: type | None = None) -> Any:
        owner = self._dataclass_type
        namespace = {"__post_init__": owner.__post_init__} if hasattr(owner, "__post_init__") else {}
        declarations = [(attribute.name, attribute.type, copy(attribute)) for attribute in fields(owner)]
        template = make_dataclass(owner.__name__, declarations, namespace=namespace, repr=False, eq=False)
        init = vars(template)["__init__"]
        init.__qualname__ = f"{owner.__qualname__}.__init__"
        owner.__init__ = init
        return init if instance is None else init.__get__(instance)
