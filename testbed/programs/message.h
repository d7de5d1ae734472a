// SPDX-License-Identifier: MIT OR Apache-2.0
/* The messages of apm_stream: numbered, filled with what depends on the number, and checksummed. */
#ifndef MESSAGE_H
#define MESSAGE_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MESSAGE_MAGIC 0x41504d53u /* "APMS" */

/* Everything is big-endian. */
struct message {
	uint32_t magic;
	uint32_t conn;
	uint64_t number; /* from 1 */
	uint64_t received; /* how many of the peer's messages have arrived */
	uint32_t last; /* 1: the sender has no more */
	uint32_t length; /* of this header and the payload, bytes */
	uint64_t checksum; /* FNV-1a of the whole message with this field zero */
	unsigned char payload[];
};

static uint64_t message_checksum(const struct message *message, uint32_t length)
{
	const unsigned char *bytes = (const unsigned char *)message;
	uint64_t sum = 0xcbf29ce484222325;

	for (uint32_t i = 0; i < length; i++)
		sum = (sum ^ bytes[i]) * 0x100000001b3;
	return sum;
}

/* Makes a message of `length` bytes. */
static void message_fill(struct message *message, uint32_t length, uint32_t conn, uint64_t number,
			 uint64_t received, bool last)
{
	uint64_t random = number * 0x9e3779b97f4a7c15 + conn;

	message->magic = htobe32(MESSAGE_MAGIC);
	message->conn = htobe32(conn);
	message->number = htobe64(number);
	message->received = htobe64(received);
	message->last = htobe32(last);
	message->length = htobe32(length);
	message->checksum = 0;
	for (size_t i = 0; i < length - sizeof *message; i++) {
		if (i % 8 == 0) {
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
		}
		message->payload[i] = random >> (i % 8 * 8);
	}
	message->checksum = htobe64(message_checksum(message, length));
}

/* Whether `arrived` bytes are a message of `length` bytes as it was made. */
static bool message_intact(struct message *message, uint32_t length, uint32_t arrived)
{
	uint64_t stated;

	if (arrived != length || be32toh(message->magic) != MESSAGE_MAGIC || be32toh(message->length) != length)
		return false;
	stated = be64toh(message->checksum);
	message->checksum = 0;
	return message_checksum(message, length) == stated;
}

#endif
