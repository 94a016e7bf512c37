"""Models that pydantic checks, declared without pydantic, because importing it takes longer than a short command (ADR 43).

A declaration is written as for pydantic, and becomes a pydantic model at its first check. A checked value is an object of the
declared class. Its own attributes are the keys that were set; the defaults are attributes of the class.
"""

# ruff: noqa: SLF001 - names with an underscore, since a model's keys are attributes of the same class
from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "AfterValidator",
    "BaseModel",
    "BeforeValidator",
    "Field",
    "StrictModel",
    "field_validator",
    "model_validator",
]

if TYPE_CHECKING:
    from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, field_validator, model_validator
else:

    class _Call:
        """A call of a function of pydantic, made when a model is built."""

        def __init__(self, name, arguments, options):
            self.name, self.arguments, self.options, self.decorated = name, arguments, options, None

        def __call__(self, decorated):
            self.decorated = decorated
            return self

        def __get_pydantic_core_schema__(self, source, handler):  # inside of `Annotated`
            return self.run().__get_pydantic_core_schema__(source, handler)

        def run(self):
            import pydantic

            outcome = getattr(pydantic, self.name)(*self.arguments, **self.options)
            return outcome if self.decorated is None else outcome(self.decorated)

    def _deferred(name):
        return lambda *arguments, **options: _Call(name, arguments, options)

    AfterValidator, BeforeValidator = _deferred("AfterValidator"), _deferred("BeforeValidator")
    Field, field_validator, model_validator = map(_deferred, ("Field", "field_validator", "model_validator"))

    class _Declaration(type):
        """The metaclass of declared models. Class methods of the pydantic model are looked up on the model."""

        def __new__(cls, name, bases, namespace):
            calls = {key: call for key, call in namespace.items() if isinstance(call, _Call)}
            defaults = {
                key: call.arguments[0] for key, call in calls.items() if call.name == "Field" and call.arguments
            }
            plain = {key: value for key, value in namespace.items() if key not in calls}
            declaration = super().__new__(cls, name, bases, plain | defaults)
            names = [*(name for base in bases for name in base._names), *namespace.get("__annotations__", ())]
            declaration._names = tuple(dict.fromkeys(names))
            declaration._namespace, declaration._model = namespace, None
            return declaration

        def __call__(cls, **values):
            return cls.model_validate(values)

        def __getattr__(cls, name):
            if not name.startswith("model_"):
                raise AttributeError(name)
            return getattr(cls._build(), name)

        def _build(cls):
            """Build and return the pydantic model of this declaration."""
            if cls._model is None:
                import pydantic

                bases = tuple(base._build() for base in cls.__bases__ if base is not BaseModel) or (pydantic.BaseModel,)
                namespace = {
                    key: value.run() if isinstance(value, _Call) else value for key, value in cls._namespace.items()
                }
                cls._model = type(pydantic.BaseModel)(cls.__name__, bases, namespace)
            return cls._model

        def _check(cls, values, check):
            """Return `values` unchanged if it is an object of this class. Otherwise validate it and return an object."""
            if isinstance(values, cls):
                return values
            model = check(values)
            return cls.model_construct(
                **{name: vars(model)[name] for name in cls._names if name in model.model_fields_set}
            )

    class BaseModel(metaclass=_Declaration):
        @classmethod
        def model_validate(cls, values, **options):
            return cls._check(values, lambda values: cls._build().model_validate(values, **options))

        @classmethod
        def model_construct(cls, **values):
            instance = object.__new__(cls)
            vars(instance).update(values)
            return instance

        @classmethod
        def __get_pydantic_core_schema__(cls, _, handler):
            from pydantic_core import core_schema

            as_model = core_schema.wrap_serializer_function_ser_schema(lambda value, dump: dump(value._as_model()))
            schema = handler.generate_schema(cls._build())
            return core_schema.no_info_wrap_validator_function(cls._check, schema, serialization=as_model)

        def _as_model(self):
            return type(self)._build().model_construct({*vars(self)}, **dict(self))

        def __setattr__(self, name, value):
            raise AttributeError(f"{type(self).__name__}.{name} cannot be set: settings are frozen")

        def __getattr__(self, name):
            if not name.startswith("model_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return getattr(self._as_model(), name)

        def model_copy(self, *, update=None):
            return self.model_construct(**{**vars(self), **(update or {})})

        def __iter__(self):
            return ((name, getattr(self, name)) for name in self._names)

        def __eq__(self, other):
            return [*self] == [*other] if type(other) is type(self) else NotImplemented

        def __hash__(self):
            return hash(tuple(self))

        def __repr__(self):
            return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self)})"


class StrictModel(BaseModel):
    """A model that refuses unknown keys. Its validator is built at the first validation."""

    model_config = {"extra": "forbid", "frozen": True, "defer_build": True}
