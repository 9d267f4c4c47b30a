"""Protobuf messages as plain values for JSON."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message


def enum_name(descriptor: EnumDescriptor, value: int, prefix: str) -> str:
    """Returns an enum value's name in lower case without its prefix; unknown values as digits."""
    known = descriptor.values_by_number.get(value)
    return known.name.removeprefix(prefix).lower() if known else str(value)


def to_dict(message: Message) -> dict[str, Any]:
    """Returns a message's fields under their proto names.

    Unset optional fields and messages are None, other unset fields have their default. Unlike the
    canonical JSON of protobuf, 64-bit integers stay numbers and enums are short names in lower
    case ("agent_exit" for EXIT_REASON_AGENT_EXIT). Byte fields are left out.
    """
    return {
        field.name: _value(message, field)
        for field in message.DESCRIPTOR.fields
        if field.type != FieldDescriptor.TYPE_BYTES
    }


def _value(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if _is_map(field):
        entry = field.message_type.fields_by_name["value"]
        return {str(key): _scalar(item, entry) for key, item in value.items()}
    if field.is_repeated:
        return [_scalar(item, field) for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _scalar(value, field)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _scalar(value: Any, field: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return to_dict(value)
    if field.type == FieldDescriptor.TYPE_ENUM:
        unspecified = field.enum_type.values[0].name
        return enum_name(field.enum_type, value, unspecified.removesuffix("UNSPECIFIED"))
    return value
