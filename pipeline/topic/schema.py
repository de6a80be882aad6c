"""The messages of Pulsar's binary protocol that a reader needs, for the protobuf library.

Described here, not generated: protoc's code needs its own protobuf version or a newer one, and a Spark
cluster's workers have theirs. Numbers and types are those of Pulsar 4.0.8; unread fields are skipped.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "tidegate.pulsar"
_TYPE = descriptor_pb2.FieldDescriptorProto
_TYPES: Final = {
    "string": _TYPE.TYPE_STRING,
    "bytes": _TYPE.TYPE_BYTES,
    "bool": _TYPE.TYPE_BOOL,
    "int32": _TYPE.TYPE_INT32,
    "int64": _TYPE.TYPE_INT64,
    "uint32": _TYPE.TYPE_UINT32,
    "uint64": _TYPE.TYPE_UINT64,
}

# Enumerations are plain int32 here: a new value in a newer Pulsar must not make a message unreadable.
_MESSAGES: Final[dict[str, dict[str, tuple[int, str]]]] = {
    "MessageIdData": {
        "ledger_id": (1, "uint64"),
        "entry_id": (2, "uint64"),
        "partition": (3, "int32"),
        "batch_index": (4, "int32"),
    },
    "EncryptionKeys": {"key": (1, "string")},
    "MessageMetadata": {
        "producer_name": (1, "string"),
        "publish_time": (3, "uint64"),
        "partition_key": (6, "string"),
        "compression": (8, "int32"),
        "uncompressed_size": (9, "uint32"),
        "num_messages_in_batch": (11, "int32"),
        "encryption_keys": (13, "repeated EncryptionKeys"),
        "deliver_at_time": (19, "int64"),
        "marker_type": (20, "int32"),
        "txnid_least_bits": (22, "uint64"),
        "txnid_most_bits": (23, "uint64"),
        "num_chunks_from_msg": (27, "int32"),
        "chunk_id": (29, "int32"),
        "null_partition_key": (30, "bool"),
    },
    "SingleMessageMetadata": {
        "partition_key": (2, "string"),
        "payload_size": (3, "int32"),
        "null_partition_key": (10, "bool"),
    },
    "FeatureFlags": {"supports_auth_refresh": (1, "bool")},
    "CommandConnect": {
        "client_version": (1, "string"),
        "auth_data": (3, "bytes"),
        "protocol_version": (4, "int32"),
        "auth_method_name": (5, "string"),
        "proxy_to_broker_url": (6, "string"),
        "feature_flags": (10, "FeatureFlags"),
    },
    "CommandConnected": {
        "server_version": (1, "string"),
        "protocol_version": (2, "int32"),
        "max_message_size": (3, "int32"),
    },
    "CommandSubscribe": {
        "topic": (1, "string"),
        "subscription": (2, "string"),
        "sub_type": (3, "int32"),
        "consumer_id": (4, "uint64"),
        "request_id": (5, "uint64"),
        "consumer_name": (6, "string"),
        "durable": (8, "bool"),
        "start_message_id": (9, "MessageIdData"),
        "read_compacted": (11, "bool"),
        "initial_position": (13, "int32"),
        "force_topic_creation": (15, "bool"),
    },
    "CommandLookupTopic": {
        "topic": (1, "string"),
        "request_id": (2, "uint64"),
        "authoritative": (3, "bool"),
    },
    "CommandLookupTopicResponse": {
        "broker_service_url": (1, "string"),
        "broker_service_url_tls": (2, "string"),
        "response": (3, "int32"),
        "request_id": (4, "uint64"),
        "authoritative": (5, "bool"),
        "error": (6, "int32"),
        "message": (7, "string"),
        "proxy_through_service_url": (8, "bool"),
    },
    "CommandMessage": {
        "consumer_id": (1, "uint64"),
        "message_id": (2, "MessageIdData"),
    },
    "CommandFlow": {"consumer_id": (1, "uint64"), "message_permits": (2, "uint32")},
    "CommandSuccess": {"request_id": (1, "uint64")},
    "CommandError": {"request_id": (1, "uint64"), "error": (2, "int32"), "message": (3, "string")},
    "CommandCloseConsumer": {"consumer_id": (1, "uint64"), "request_id": (2, "uint64")},
    "CommandReachedEndOfTopic": {"consumer_id": (1, "uint64")},
    "CommandGetLastMessageId": {"consumer_id": (1, "uint64"), "request_id": (2, "uint64")},
    "CommandGetLastMessageIdResponse": {
        "last_message_id": (1, "MessageIdData"),
        "request_id": (2, "uint64"),
    },
    "CommandPing": {},
    "CommandPong": {},
    "AuthData": {"auth_method_name": (1, "string"), "auth_data": (2, "bytes")},
    "CommandAuthChallenge": {"challenge": (2, "AuthData")},
    "CommandAuthResponse": {
        "client_version": (1, "string"),
        "response": (2, "AuthData"),
        "protocol_version": (3, "int32"),
    },
    "CommandTopicMigrated": {"resource_id": (1, "uint64")},
    "BaseCommand": {
        "type": (1, "int32"),
        "connect": (2, "CommandConnect"),
        "connected": (3, "CommandConnected"),
        "subscribe": (4, "CommandSubscribe"),
        "message": (9, "CommandMessage"),
        "flow": (11, "CommandFlow"),
        "success": (13, "CommandSuccess"),
        "error": (14, "CommandError"),
        "close_consumer": (16, "CommandCloseConsumer"),
        "ping": (18, "CommandPing"),
        "pong": (19, "CommandPong"),
        "lookup": (23, "CommandLookupTopic"),
        "lookup_response": (24, "CommandLookupTopicResponse"),
        "reached_end_of_topic": (27, "CommandReachedEndOfTopic"),
        "get_last_message_id": (29, "CommandGetLastMessageId"),
        "get_last_message_id_response": (30, "CommandGetLastMessageIdResponse"),
        "auth_challenge": (36, "CommandAuthChallenge"),
        "auth_response": (37, "CommandAuthResponse"),
        "topic_migrated": (68, "CommandTopicMigrated"),
    },
}

NOT_SET: Final = {
    "num_messages_in_batch": -1,
    "deliver_at_time": -(1 << 63),
    "marker_type": -1,
    "chunk_id": -1,
}
"""The values of unset fields: reading one costs half of asking for it."""

COMMANDS: Final = {name: number for name, (number, _) in _MESSAGES["BaseCommand"].items() if name != "type"}
"""The types of the commands: in Pulsar a command's type is the number of its field."""


def field_number(message: str, name: str) -> int:
    """The number of a field, for code that walks the bytes itself."""
    return _MESSAGES[message][name][0]


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="tidegate_pulsar.proto", package=_PACKAGE, syntax="proto2")
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            field = described.field.add(name=name, number=number, label=_TYPE.LABEL_OPTIONAL)
            bare = kind.removeprefix("repeated ")
            if bare != kind:
                field.label = _TYPE.LABEL_REPEATED
            if bare in _TYPES:
                field.type = _TYPES[bare]
                if name in NOT_SET:
                    field.default_value = str(NOT_SET[name])
            else:
                field.type, field.type_name = _TYPE.TYPE_MESSAGE, f".{_PACKAGE}.{bare}"
    return file


# A pool of our own: the default one may have other messages of the same name.
_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_file())


def message_class(name: str) -> Any:
    """The class of one of the messages above."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


BaseCommand = message_class("BaseCommand")
MessageMetadata = message_class("MessageMetadata")
SingleMessageMetadata = message_class("SingleMessageMetadata")
