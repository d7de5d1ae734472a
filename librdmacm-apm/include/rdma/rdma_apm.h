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
 * How the connection is to be protected can be said with it, by a struct rdma_apm_options in place of
 * the byte; what that leaves open is as the daemon's configuration says, and `apmctl conn set` changes
 * it.
 *
 * Errors: EINVAL if the value is not one byte of 0 or 1, nor a good struct rdma_apm_options, or if the id is not of a reliable
 * connection. Whether a connection can be protected is known only when the daemon has seen it:
 * without a daemon, and on devices or ports without APM, the option is accepted and has no effect.
 *
 * When rdma_connect() or rdma_accept() is called with the option set, daemons running here and at the
 * peer, and a second port that is up (or LMC above 0), the local ACK timeout is set to 67 ms
 * (4.096 us * 2^14) instead of rdma_cm's, with which a dead path is noticed only after many seconds.
 * RDMA_APM_ACK_TIMEOUT in the environment sets another exponent, 0 leaves rdma_cm's; so does an
 * application's own RDMA_OPTION_ID_ACK_TIMEOUT.
 */
#ifndef RDMA_APM_H
#define RDMA_APM_H

#include <stdint.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * An option of level RDMA_OPTION_IB; its value is a uint8_t, 1 for on, 0 for off, or a
 * struct rdma_apm_options.
 */
#define RDMA_OPTION_IB_APM 2

/* Which paths may be alternates. */
enum rdma_apm_mode {
	/* As the daemon's configuration says. */
	RDMA_APM_MODE_DEFAULT = 0,
	/* By another port where there is one, else by another LID of the same ports. */
	RDMA_APM_MODE_ANY = 1,
	/* Only by another port, here or at the peer. */
	RDMA_APM_MODE_PORT = 2,
	/* Only by another LID of the same ports. */
	RDMA_APM_MODE_LID = 3
};

/* Which port of this host's device the connection belongs on. */
enum rdma_apm_failback {
	/* As the daemon's configuration says. */
	RDMA_APM_FAILBACK_DEFAULT = 0,
	/* The one that it is on. */
	RDMA_APM_FAILBACK_STAY = 1,
	/* The member port, whenever that is good. */
	RDMA_APM_FAILBACK_PREFER = 2,
	/* Any, so that the host's connections divide over the ports that are good. */
	RDMA_APM_FAILBACK_SPREAD = 3
};

/*
 * Set all of it to zero, then what is wanted. Later versions have more members at the end, of which
 * zero means what was before: an older one is read as if these were zero, a newer one is refused with
 * EINVAL only if it uses what the library does not know. A value that is wrong in another way is
 * refused with EINVAL, and nothing changes.
 */
struct rdma_apm_options {
	/* sizeof(struct rdma_apm_options); the option's length as well. */
	uint32_t size;
	/* 1 for on, 0 for off; then nothing else counts. */
	uint8_t on;
	/* enum rdma_apm_mode */
	uint8_t mode;
	/* enum rdma_apm_failback */
	uint8_t failback;
	/* RDMA_APM_FAILBACK_PREFER: the port, from 1; else 0. */
	uint8_t port;
	/*
	 * How many milliseconds a port must have been good before the connection goes there; 0: as the
	 * daemon's configuration says.
	 */
	uint32_t hold_down_ms;
};

/*
 * Events for ids that set the option. They come from rdma_get_cm_event() on the id's event channel,
 * in one order with librdmacm's own, and are acknowledged by rdma_ack_cm_event(). event->id is the
 * id, event->status 0 or a negative errno, event->param all zero. An application may ignore them:
 * nothing waits for it, except that rdma_destroy_id() waits, as with librdmacm's, until those that
 * were read are acknowledged. Ids without an event channel of the application's (synchronous ids,
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

/* What rdma_enable_apm() is asked for: an alternate path by another port, another LID, or either. */
enum rdma_alt_path_type {
	RDMA_ALT_PATH_NONE = 0,
	RDMA_ALT_PATH_PORT = 1,
	RDMA_ALT_PATH_LID = 2,
	RDMA_ALT_PATH_BEST = 3
};

/*
 * As in Oracle's kernels: the option with a mode and nothing else, RDMA_ALT_PATH_NONE turns it off.
 * Returns 0, or a negative errno, and does not set errno: -EINVAL (no such type, or the id is not of a
 * reliable connection).
 */
int rdma_enable_apm(struct rdma_cm_id *id, enum rdma_alt_path_type type);

/*
 * For programs that connect their queue pairs by themselves: puts an RC queue pair in state RTS
 * under APM. Both sides call it. peer_gid is the GID of the peer's port on the primary path; it may
 * be NULL if the queue pair's address has a GRH. The rest is read from the queue pair. Its ACK timeout
 * is the program's to choose (14 is a good value: 67 ms): it cannot be changed in state RTS. The library
 * lets go of it in rdma_apm_detach_qp(), ibv_destroy_qp(), when it is modified to error or reset, or when
 * the program sets its alternate path or migration state by itself afterwards.
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
