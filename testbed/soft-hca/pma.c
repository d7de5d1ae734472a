// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The performance management agent of HCAs and switches (IBA vol. 1, 16.1). */
#include <linux/stddef.h>
#include <rdma/ib_pma.h>
#include "fabric_int.h"
#include "unaligned.h"

#define ALL_PORTS	0xff
#define RESP_TIME	16

/* Where a counter stands in its attribute, and the CounterSelect bit that sets it. */
struct pma_field {
	u8 counter;	/* enum fabric_counter */
	u8 offset;
	u8 bytes;
	u8 select;
};

#define FIELD(counter, attribute, member, select) \
	{ counter, offsetof(struct attribute, member), \
	  sizeof_field(struct attribute, member), select }

static const struct pma_field port_counters[] = {
	FIELD(CNT_SYMBOL_ERRORS, ib_pma_portcounters, symbol_error_counter, 0),
	FIELD(CNT_LINK_RECOVERIES, ib_pma_portcounters, link_error_recovery_counter, 1),
	FIELD(CNT_LINK_DOWNED, ib_pma_portcounters, link_downed_counter, 2),
	FIELD(CNT_RCV_ERRORS, ib_pma_portcounters, port_rcv_errors, 3),
	FIELD(CNT_RCV_REMPHYS_ERRORS, ib_pma_portcounters, port_rcv_remphys_errors, 4),
	FIELD(CNT_RCV_SWITCH_RELAY_ERRORS, ib_pma_portcounters, port_rcv_switch_relay_errors, 5),
	FIELD(CNT_XMIT_DISCARDS, ib_pma_portcounters, port_xmit_discards, 6),
	FIELD(CNT_XMIT_CONSTRAINT_ERRORS, ib_pma_portcounters, port_xmit_constraint_errors, 7),
	FIELD(CNT_RCV_CONSTRAINT_ERRORS, ib_pma_portcounters, port_rcv_constraint_errors, 8),
	FIELD(CNT_VL15_DROPPED, ib_pma_portcounters, vl15_dropped, 11),
	FIELD(CNT_XMIT_DATA, ib_pma_portcounters, port_xmit_data, 12),
	FIELD(CNT_RCV_DATA, ib_pma_portcounters, port_rcv_data, 13),
	FIELD(CNT_XMIT_PKTS, ib_pma_portcounters, port_xmit_packets, 14),
	FIELD(CNT_RCV_PKTS, ib_pma_portcounters, port_rcv_packets, 15),
};

static const struct pma_field port_counters_ext[] = {
	FIELD(CNT_XMIT_DATA, ib_pma_portcounters_ext, port_xmit_data, 0),
	FIELD(CNT_RCV_DATA, ib_pma_portcounters_ext, port_rcv_data, 1),
	FIELD(CNT_XMIT_PKTS, ib_pma_portcounters_ext, port_xmit_packets, 2),
	FIELD(CNT_RCV_PKTS, ib_pma_portcounters_ext, port_rcv_packets, 3),
	FIELD(CNT_UNICAST_XMIT_PKTS, ib_pma_portcounters_ext, port_unicast_xmit_packets, 4),
	FIELD(CNT_UNICAST_RCV_PKTS, ib_pma_portcounters_ext, port_unicast_rcv_packets, 5),
	FIELD(CNT_MULTICAST_XMIT_PKTS, ib_pma_portcounters_ext, port_multicast_xmit_packets, 6),
	FIELD(CNT_MULTICAST_RCV_PKTS, ib_pma_portcounters_ext, port_multicast_rcv_packets, 7),
};

struct pma_request {
	struct fabric_node *node;
	u8 *data;
	bool set;
	bool extended;
};

static u64 *counter_base(struct fabric_port *port, const struct pma_request *rq, u8 counter)
{
	return rq->extended ? &port->counters.base_ext[counter] : &port->counters.base[counter];
}

static u64 field_read(const struct pma_field *field, const u8 *data)
{
	const u8 *at = data + field->offset;

	switch (field->bytes) {
	case 1:
		return *at;
	case 2:
		return get_unaligned_be16(at);
	case 4:
		return get_unaligned_be32(at);
	default:
		return get_unaligned_be64(at);
	}
}

/* PortCounters stick at their maximum, IBA 16.1.3.5. */
static void field_write(const struct pma_field *field, u8 *data, u64 value)
{
	u8 *at = data + field->offset;

	switch (field->bytes) {
	case 1:
		*at = min_t(u64, value, U8_MAX);
		break;
	case 2:
		put_unaligned_be16(min_t(u64, value, U16_MAX), at);
		break;
	case 4:
		put_unaligned_be32(min_t(u64, value, U32_MAX), at);
		break;
	default:
		put_unaligned_be64(value, at);
	}
}

static bool port_selected(const struct fabric_port *port, u8 select)
{
	return port && (select == port->num || (select == ALL_PORTS && port->num));
}

static void counter_set(const struct pma_request *rq, const struct pma_field *field, u8 select)
{
	u64 value = field_read(field, rq->data);
	unsigned int num;

	for (num = 0; num <= rq->node->num_ports; num++) {
		struct fabric_port *port = rq->node->port[num];

		if (port_selected(port, select))
			*counter_base(port, rq, field->counter) =
				port->counters.total[field->counter] - value;
	}
}

static u64 counter_get(const struct pma_request *rq, const struct pma_field *field, u8 select)
{
	unsigned int num;
	u64 sum = 0;

	for (num = 0; num <= rq->node->num_ports; num++) {
		struct fabric_port *port = rq->node->port[num];

		if (port_selected(port, select))
			sum += port->counters.total[field->counter] -
			       *counter_base(port, rq, field->counter);
	}
	return sum;
}

static u16 pma_counters(const struct pma_request *rq, const struct pma_field *fields,
			unsigned int count)
{
	u16 chosen = get_unaligned_be16(rq->data + 2);
	u8 select = rq->data[1];
	unsigned int i;

	if (select != ALL_PORTS &&
	    (select > rq->node->num_ports || !rq->node->port[select]))
		return IB_MGMT_MAD_STATUS_INVALID_ATTRIB_VALUE;
	for (i = 0; i < count && rq->set; i++)
		if (chosen & BIT(fields[i].select))
			counter_set(rq, &fields[i], select);

	memset(rq->data, 0, sizeof_field(struct ib_pma_mad, data));
	rq->data[1] = select;
	put_unaligned_be16(chosen, rq->data + 2);
	for (i = 0; i < count; i++)
		field_write(&fields[i], rq->data, counter_get(rq, &fields[i], select));
	return IB_MGMT_MAD_STATUS_SUCCESS;
}

static u16 pma_class_port_info(const struct pma_request *rq)
{
	struct ib_class_port_info *cpi = (struct ib_class_port_info *)rq->data;

	if (rq->set)
		return IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD_ATTRIB;
	memset(rq->data, 0, sizeof_field(struct ib_pma_mad, data));
	cpi->base_version = IB_MGMT_BASE_VERSION;
	cpi->class_version = 1;
	cpi->capability_mask = IB_PMA_CLASS_CAP_ALLPORTSELECT | IB_PMA_CLASS_CAP_EXT_WIDTH;
	ib_set_cpi_resp_time(cpi, RESP_TIME);
	return IB_MGMT_MAD_STATUS_SUCCESS;
}

static u16 pma_dispatch(struct pma_request *rq, __be16 attr_id)
{
	switch (attr_id) {
	case IB_PMA_CLASS_PORT_INFO:
		return pma_class_port_info(rq);
	case IB_PMA_PORT_COUNTERS:
		return pma_counters(rq, port_counters, ARRAY_SIZE(port_counters));
	case IB_PMA_PORT_COUNTERS_EXT:
		rq->extended = true;
		return pma_counters(rq, port_counters_ext, ARRAY_SIZE(port_counters_ext));
	default:
		return IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD_ATTRIB;
	}
}

static int pma_reply(struct ib_mad_hdr *hdr, u16 status)
{
	hdr->method = IB_MGMT_METHOD_GET_RESP;
	hdr->status = cpu_to_be16(status);
	return IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_REPLY;
}

int pma_process(struct fabric_port *port, const struct ib_mad *in, struct ib_mad *out)
{
	struct ib_pma_mad *pma = (struct ib_pma_mad *)out;
	struct pma_request rq = {
		.node = port->node,
		.data = pma->data,
		.set = in->mad_hdr.method == IB_MGMT_METHOD_SET,
	};

	if (in->mad_hdr.method & IB_MGMT_METHOD_RESP)
		return IB_MAD_RESULT_SUCCESS;
	*out = *in;
	if (in->mad_hdr.class_version != 1)
		return pma_reply(&out->mad_hdr, IB_MGMT_MAD_STATUS_BAD_VERSION);
	if (in->mad_hdr.method != IB_MGMT_METHOD_GET && !rq.set)
		return pma_reply(&out->mad_hdr, IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD);
	return pma_reply(&out->mad_hdr, pma_dispatch(&rq, in->mad_hdr.attr_id));
}
