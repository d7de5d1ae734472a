/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The C interface, as far as it goes without a device. Prints what it finds; the test compares. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <rdma/rdma_apm.h>

static const char *outcome(int result)
{
	return result == 0 ? "ok" : strerrorname_np(errno);
}

static void option(const char *what, struct rdma_cm_id *id, int level, int name, void *value,
		   size_t len)
{
	errno = 0;
	printf("%s: %s\n", what, outcome(rdma_set_option(id, level, name, value, len)));
}

int main(void)
{
	/* Ids whose calls end at a descriptor that is none: EBADF shows that librdmacm was called. */
	struct rdma_event_channel channel = { .fd = -1 };
	/* librdmacm keeps more behind an id; it reads it, so there must be something. */
	struct { struct rdma_cm_id id; char private[1024]; } rc, ud;
	uint8_t on = 1, off = 0, two = 2, timeout = 14;
	uint32_t wide = 1;

	memset(&rc, 0, sizeof(rc));
	memset(&ud, 0, sizeof(ud));
	rc.id.channel = ud.id.channel = &channel;
	rc.id.qp_type = IBV_QPT_RC;
	ud.id.qp_type = IBV_QPT_UD;

	option("on", &rc.id, RDMA_OPTION_IB, RDMA_OPTION_IB_APM, &on, 1);
	option("off", &rc.id, RDMA_OPTION_IB, RDMA_OPTION_IB_APM, &off, 1);
	option("value 2", &rc.id, RDMA_OPTION_IB, RDMA_OPTION_IB_APM, &two, 1);
	option("four bytes", &rc.id, RDMA_OPTION_IB, RDMA_OPTION_IB_APM, &wide, sizeof(wide));
	option("no bytes", &rc.id, RDMA_OPTION_IB, RDMA_OPTION_IB_APM, &on, 0);
	option("null", &rc.id, RDMA_OPTION_IB, RDMA_OPTION_IB_APM, NULL, 1);
	option("no id", NULL, RDMA_OPTION_IB, RDMA_OPTION_IB_APM, &on, 1);
	option("datagram id", &ud.id, RDMA_OPTION_IB, RDMA_OPTION_IB_APM, &on, 1);
	option("option 3 of level 1", &rc.id, RDMA_OPTION_IB, 3, &on, 1);
	option("option 2 of level 0", &rc.id, RDMA_OPTION_ID, RDMA_OPTION_IB_APM, &on, 1);
	option("option 2 of level 7", &rc.id, 7, RDMA_OPTION_IB_APM, &on, 1);
	option("ack timeout", &rc.id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1);

	struct rdma_apm_options options = {
		.size = sizeof(options), .on = 1, .mode = RDMA_APM_MODE_PORT,
		.failback = RDMA_APM_FAILBACK_PREFER, .port = 1, .hold_down_ms = 2000,
	};
	struct { struct rdma_apm_options known; uint32_t later; } newer = { options, 0 };

	newer.known.size = sizeof(newer);
	option("options", &rc.id, RDMA_OPTION_IB, RDMA_OPTION_IB_APM, &options, sizeof(options));
	option("newer options", &rc.id, RDMA_OPTION_IB, RDMA_OPTION_IB_APM, &newer, sizeof(newer));
	newer.later = 1;
	option("unknown options", &rc.id, RDMA_OPTION_IB, RDMA_OPTION_IB_APM, &newer, sizeof(newer));
	option("options of a datagram id", &ud.id, RDMA_OPTION_IB, RDMA_OPTION_IB_APM, &options,
	       sizeof(options));
	option("half of the options", &rc.id, RDMA_OPTION_IB, RDMA_OPTION_IB_APM, &options, 8);
	options.size = 8;
	option("older options", &rc.id, RDMA_OPTION_IB, RDMA_OPTION_IB_APM, &options, 8);
	options.port = 0;
	option("no port to prefer", &rc.id, RDMA_OPTION_IB, RDMA_OPTION_IB_APM, &options, 8);
	options.failback = RDMA_APM_FAILBACK_SPREAD;
	option("spread", &rc.id, RDMA_OPTION_IB, RDMA_OPTION_IB_APM, &options, 8);
	options.mode = 4;
	option("mode 4", &rc.id, RDMA_OPTION_IB, RDMA_OPTION_IB_APM, &options, 8);

	for (int type = RDMA_ALT_PATH_NONE; type <= RDMA_ALT_PATH_BEST + 1; type++) {
		errno = 0;
		int result = rdma_enable_apm(&rc.id, (enum rdma_alt_path_type)type);
		printf("alternates of type %d: %s, errno %d\n", type,
		       result ? strerrorname_np(-result) : "ok", errno);
	}
	printf("alternates of a datagram id: %s\n",
	       strerrorname_np(-rdma_enable_apm(&ud.id, RDMA_ALT_PATH_BEST)));
	printf("alternates of no id: %s\n",
	       strerrorname_np(-rdma_enable_apm(NULL, RDMA_ALT_PATH_BEST)));

	for (int event = 0x1000; event <= 0x1005; event++)
		printf("0x%x: %s\n", event, rdma_event_str((enum rdma_cm_event_type)event));
	printf("9: %s\n", rdma_event_str(RDMA_CM_EVENT_ESTABLISHED));

	struct ibv_qp qp;
	memset(&qp, 0, sizeof(qp));
	qp.qp_type = IBV_QPT_UD;
	printf("attach nothing: %s\n", outcome(rdma_apm_attach_qp(NULL, RDMA_APM_ACTIVE, NULL)));
	printf("attach datagram: %s\n", outcome(rdma_apm_attach_qp(&qp, RDMA_APM_ACTIVE, NULL)));
	qp.qp_type = IBV_QPT_RC;
	printf("attach as 3: %s\n", outcome(rdma_apm_attach_qp(&qp, (enum rdma_apm_role)3, NULL)));
	printf("detach: %s\n", outcome(rdma_apm_detach_qp(&qp)));
	printf("state: %s\n", outcome(rdma_apm_get_state(&qp)));
	return 0;
}
