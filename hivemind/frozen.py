"""The decorator `frozen`, for classes that only hold values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, cast, dataclass_transform, overload

_DEFERRED_NAMES = ("__init__", "__dataclass_fields__", "__dataclass_params__", "__match_args__")
T = TypeVar("T")


@overload
def frozen(cls: type[T], /) -> type[T]: ...
@overload
def frozen(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T] | None = None, /, *, kw_only: bool = False) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a class a dataclass with slots that is compared and hashed by its values. The type checker forbids changes
    of its fields.

    `@dataclass(frozen=True)` takes half a millisecond for a class, and calls a function for each field of a new object. A
    command makes objects of few of the classes that it imports, so this decorator makes only the slots at once. `__init__`,
    which sets the fields directly, is compiled when the first object is made.
    """

    def make(cls: type[T]) -> type[T]:
        cls.__doc__ = cls.__doc__ or cls.__name__  # else `dataclass` makes a text of the signature
        annotations = vars(cls).get("__annotations__", {})
        names = [name for name, kind in annotations.items() if not kind.startswith("ClassVar")]
        inherited_names = {name for base in cls.__mro__[1:] for name in getattr(base, "__slots__", ())}
        replaced_names = (*names, "__dict__", "__weakref__")
        namespace = {name: value for name, value in vars(cls).items() if name not in replaced_names}
        namespace["__slots__"] = [name for name in names if name not in inherited_names]

        def compared_values(value: Any) -> Any:
            nonlocal compared_values
            compared_names = [attribute.name for attribute in fields(value) if attribute.compare]
            compared_values = cast("Any", attrgetter(*compared_names) if compared_names else type)
            return compared_values(value)

        def represent(self: Any) -> str:
            shown_names = [attribute.name for attribute in fields(self) if attribute.repr]
            return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown_names)})"

        def equal(self: T, other: object) -> Any:
            return compared_values(self) == compared_values(other) if type(other) is type(self) else NotImplemented

        def hash_values(self: T) -> int:
            return hash(compared_values(self))

        methods = {"__repr__": represent, "__eq__": equal, "__hash__": hash_values}
        deferred = {name: _Deferred(cls, kw_only) for name in _DEFERRED_NAMES}
        metaclass: Any = type(cls)
        frozen_class = metaclass(cls.__name__, cls.__bases__, methods | namespace | deferred)
        frozen_class.__qualname__ = cls.__qualname__
        return cast("type[T]", frozen_class)

    return make if cls is None else make(cls)


class _Deferred:
    """A placeholder for an attribute that `dataclass` would make. The first look-up of one placeholder of a class replaces all of
    them.
    """

    def __init__(self, declaration: type, kw_only: bool) -> None:
        self._declaration, self._kw_only = declaration, kw_only

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, _: type | None = None) -> Any:
        dataclass(repr=False, eq=False, kw_only=self._kw_only)(self._declaration)
        for name in _DEFERRED_NAMES:
            setattr(self._owner, name, vars(self._declaration)[name])
        return getattr(self._owner if instance is None else instance, self._name)
