/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Automatic path migration for RDMA connections, kept armed by apmd.
 *
 * An application that connects by librdmacm sets one option on its id, on either side, at any time
 * from rdma_create_id() on:
 *
 *	uint8_t on = 1;
 *	rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_APM, &on, sizeof on);
 *
 * From RDMA_CM_EVENT_ESTABLISHED on, an alternate path is looked for, agreed on with the peer and
 * loaded, again after each migration, as long as the id is connected and the option is set. A
 * listening id passes the option on to the ids of its connection requests. The option takes effect
 * if librdmacm-apm is loaded: link it before librdmacm (-lrdmacm-apm -lrdmacm), or run the program
 * under "apmctl run". Without it, librdmacm refuses the option with ENOSYS and the program may go on.
 *
 * Errors: EINVAL if the value is not one byte of 0 or 1, or if the id is not of a reliable
 * connection. Whether a connection can be protected is known only when the daemon has seen it:
 * without a daemon, and on devices or ports without APM, the option is accepted and has no effect.
 *
 * When rdma_connect() or rdma_accept() is called with the option set and a daemon running, the
 * local ACK timeout is set to 67 ms (4.096 us * 2^14) instead of rdma_cm's, with which a dead path
 * is noticed only after many seconds. RDMA_APM_ACK_TIMEOUT in the environment sets another exponent,
 * 0 leaves rdma_cm's; so does an application's own RDMA_OPTION_ID_ACK_TIMEOUT.
 */
#ifndef RDMA_APM_H
#define RDMA_APM_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An option of level RDMA_OPTION_IB; its value is a uint8_t, 1 for on, 0 for off. */
#define RDMA_OPTION_IB_APM 2

/*
 * Events for ids that set the option. They come from rdma_get_cm_event() on the id's event channel,
 * in one order with librdmacm's own, and are acknowledged by rdma_ack_cm_event(). event->id is the
 * id, event->status 0 or a negative errno, event->param all zero. An application may ignore them:
 * nothing waits for it. Ids without an event channel of the application's (synchronous ids,
 * rdma_create_ep) get none. rdma_event_str() knows their names.
 */
enum rdma_apm_event_type {
	/* An alternate path was found. */
	RDMA_CM_EVENT_ALT_ROUTE_RESOLVED = 0x1000,
	/* None was found or agreed on; status says why. It will be tried again. */
	RDMA_CM_EVENT_ALT_ROUTE_ERROR = 0x1001,
	/* An alternate path is about to be loaded. */
	RDMA_CM_EVENT_LOAD_ALT_PATH = 0x1002,
	/* It is loaded. It is armed when packets have come from the peer. */
	RDMA_CM_EVENT_ALT_PATH_LOADED = 0x1003,
	/* The connection goes on over what was its alternate path. */
	RDMA_CM_EVENT_PATH_MIGRATED = 0x1004
};

/* How well a connection is protected. */
enum rdma_apm_state {
	/* Nobody has looked at it yet, or the daemon has refused it. */
	RDMA_APM_UNMANAGED = 0,
	/* No alternate path is loaded; without a daemon it stays so. */
	RDMA_APM_UNPROTECTED = 1,
	/* An alternate path is loaded; it counts from the next packet of the peer's on. */
	RDMA_APM_REARMING = 2,
	/* The hardware changes to the alternate path when the primary fails. */
	RDMA_APM_ARMED = 3
};

/* Which side of the connection a program is; the other side must be the other. */
enum rdma_apm_role {
	RDMA_APM_ACTIVE = 1,
	RDMA_APM_PASSIVE = 2
};

/*
 * For programs that connect their queue pairs by themselves: puts an RC queue pair in state RTS
 * under APM. Both sides call it. peer_gid is the GID of the peer's port on the primary path; it may
 * be NULL if the queue pair's address has a GRH. The rest is read from the queue pair. Its ACK timeout
 * is the program's to choose (14 is a good value: 67 ms): it cannot be changed in state RTS. The library
 * lets go of it in rdma_apm_detach_qp(), ibv_destroy_qp(), or when it is modified to error or reset.
 *
 * Returns 0, or -1 and errno: EINVAL (not RC, no such role), EEXIST (it already is under APM).
 */
int rdma_apm_attach_qp(struct ibv_qp *qp, enum rdma_apm_role role, const union ibv_gid *peer_gid);

/*
 * Takes a queue pair out of APM, however it came under it. An alternate path that is loaded stays
 * loaded. Returns 0, or -1 and errno: ENOENT (it is not under APM).
 */
int rdma_apm_detach_qp(struct ibv_qp *qp);

/*
 * The state of a queue pair under APM, as last seen: an enum rdma_apm_state, or -1 and errno:
 * ENOENT (it is not under APM). Does not block and asks nobody.
 */
int rdma_apm_get_state(struct ibv_qp *qp);

#ifdef __cplusplus
}
#endif

#endif /* RDMA_APM_H */
