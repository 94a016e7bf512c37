"""The decorator `frozen`, for classes that only hold values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
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

    `@dataclass(frozen=True)` takes half a millisecond for a class, and calls a function for each field of a new object. A
    command makes objects of few of the classes that it imports, so this decorator only makes the slots, and compiles
    `__init__`, which sets the fields directly, for the first object.
    """

    def make(cls: type[T]) -> type[T]:
        cls.__doc__ = cls.__doc__ or cls.__name__  # else `dataclass` makes a text of the signature
        names = [
            name for name, kind in vars(cls).get("__annotations__", {}).items() if not str(kind).startswith("ClassVar")
        ]
        inherited_names = {name for base in cls.__mro__[1:] for name in getattr(base, "__slots__", ())}
        namespace = {
            name: value for name, value in vars(cls).items() if name not in (*names, "__dict__", "__weakref__")
        }
        namespace["__slots__"] = tuple(name for name in names if name not in inherited_names)

        def compared_values(value: Any) -> Any:
            nonlocal compared_values
            compared_names = [attribute.name for attribute in fields(value) if attribute.compare]
            compared_values = cast("Any", attrgetter(*compared_names) if compared_names else type)
            return compared_values(value)

        def represent(self: Any) -> str:
            shown_names = [attribute.name for attribute in fields(self) if attribute.repr]
            return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown_names)})"

        def equal(self: T, other: T) -> bool:
            return (
                bool(compared_values(self) == compared_values(other)) if type(other) is type(self) else NotImplemented
            )

        def hash_values(self: T) -> int:
            return hash(compared_values(self))

        methods = {"__repr__": represent, "__eq__": equal, "__hash__": hash_values}
        as_dataclass = {
            "__dataclass_fields__": _Fields(cls, kw_only),
            "__dataclass_params__": vars(_Fields)["__dataclass_params__"],
        }
        metaclass: Any = type(cls)
        frozen_class = metaclass(
            cls.__name__, cls.__bases__, methods | namespace | as_dataclass | {"__init__": _Init()}
        )
        frozen_class.__qualname__ = cls.__qualname__
        return cast("type[T]", frozen_class)

    return make if cls is None else make(cls)


@dataclass
class _Fields:
    """The fields of a class, made by `dataclass` of its `declaration` when they are first looked up."""

    declaration: type
    kw_only: bool

    def __get__(self, instance: object, owner: type) -> dict[str, Any]:
        if "__dataclass_fields__" not in vars(self.declaration):
            dataclass(init=False, repr=False, eq=False, kw_only=self.kw_only)(self.declaration)
        return cast("dict[str, Any]", vars(self.declaration)["__dataclass_fields__"])


class _Init:
    """The function `__init__` of a class, compiled when it is first looked up."""

    def __set_name__(self, owner: Any, _: str) -> None:
        self._owner = owner

    def __get__(self, instance: object, _: type | None = None) -> Any:
        owner = self._owner
        namespace: dict[str, Any] = {"MISSING": MISSING}
        parameters, lines = ["self"], []
        for attribute in sorted(fields(owner), key=attrgetter("kw_only")):
            name = parameter = value = attribute.name
            if attribute.kw_only and "*" not in parameters:
                parameters.append("*")
            if attribute.default_factory is not MISSING:
                namespace[f"{name}_"] = attribute.default_factory
                parameter, value = f"{name}=MISSING", f"{name}_() if {name} is MISSING else {name}"
            elif attribute.default is not MISSING:
                namespace[f"{name}_"] = attribute.default
                parameter = f"{name}={name}_"
            parameters.append(parameter)
            lines.append(f"self.{name} = {value}")
        if hasattr(owner, "__post_init__"):
            lines.append("self.__post_init__()")
        exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines or ["pass"]), namespace)  # noqa: S102 - as dataclasses do
        init = namespace["__init__"]
        init.__qualname__ = f"{owner.__qualname__}.__init__"
        owner.__init__ = init
        return init if instance is None else init.__get__(instance)
