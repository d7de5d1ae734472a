/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
