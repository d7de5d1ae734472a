// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* KUnit: paths, on a device with two ports that exists in memory only. */
#include <kunit/test.h>

#include "path.c"

#define LID 0x40
#define OTHER_LID 0x80

struct device_of_test {
	struct ib_device ib;
	struct ib_port_data ports[3];	/* by number, from 1 on */
};

/* Two ports with 2^2 LIDs each. With a prefix, ib_core does not look for one in its cache. */
static int query_port(struct ib_device *ib, u32 num, struct ib_port_attr *port)
{
	port->lid = num == 1 ? LID : OTHER_LID;
	port->lmc = 2;
	port->subnet_prefix = 0xfe80;
	return 0;
}

static int query_nothing(struct ib_device *ib, u32 num, struct ib_port_attr *port)
{
	return -EIO;
}

static struct ib_device *make_device(struct kunit *test)
{
	struct device_of_test *dev = kunit_kzalloc(test, sizeof(*dev), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, dev);
	dev->ib.phys_port_cnt = 2;
	dev->ib.port_data = dev->ports;
	dev->ib.ops.query_port = query_port;
	dev->ports[1].immutable.core_cap_flags = RDMA_CORE_PORT_IBA_IB;
	dev->ports[2].immutable.core_cap_flags = RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
	return &dev->ib;
}

static void a_path_is_its_port_and_its_lids(struct kunit *test)
{
	struct apm_path a = { .port = 1, .slid = 2, .dlid = 3, .sl = 1, .pkey = 0xffff };
	struct apm_path b = { .port = 1, .slid = 2, .dlid = 3, .sl = 2, .pkey = 0x7fff };

	KUNIT_EXPECT_TRUE(test, apm_path_same_way(&a, &b));
	b.port = 2;
	KUNIT_EXPECT_FALSE(test, apm_path_same_way(&a, &b));
	b = a;
	b.slid = 4;
	KUNIT_EXPECT_FALSE(test, apm_path_same_way(&a, &b));
	b = a;
	b.dlid = 4;
	KUNIT_EXPECT_FALSE(test, apm_path_same_way(&a, &b));
}

static void a_path_is_written_with_the_ports_path_bits(struct kunit *test)
{
	struct apm_path path = { .port = 1, .slid = LID + 3, .dlid = 9, .sl = 5, .rate = 2 };
	struct ib_device *ib = make_device(test);
	struct rdma_ah_attr ah;

	memset(&ah, 0xff, sizeof(ah));
	KUNIT_ASSERT_EQ(test, apm_path_write(ib, &path, &ah), 0);
	KUNIT_EXPECT_EQ(test, ah.type, RDMA_AH_ATTR_TYPE_IB);
	KUNIT_EXPECT_EQ(test, rdma_ah_get_port_num(&ah), 1);
	KUNIT_EXPECT_EQ(test, rdma_ah_get_path_bits(&ah), 3);
	KUNIT_EXPECT_EQ(test, rdma_ah_get_dlid(&ah), 9);
	KUNIT_EXPECT_EQ(test, rdma_ah_get_sl(&ah), 5);
	KUNIT_EXPECT_EQ(test, rdma_ah_get_static_rate(&ah), 2);
	KUNIT_EXPECT_EQ(test, rdma_ah_get_ah_flags(&ah), 0);
}

static void a_path_that_is_not_the_ports_is_not_written(struct kunit *test)
{
	struct apm_path path = { .port = 1, .slid = LID + 4, .dlid = 9 };
	struct ib_device *ib = make_device(test);
	struct rdma_ah_attr ah;

	KUNIT_EXPECT_EQ(test, apm_path_write(ib, &path, &ah), -EADDRNOTAVAIL);
	path.slid = LID;
	path.global = true;
	KUNIT_EXPECT_EQ(test, apm_path_write(ib, &path, &ah), -EOPNOTSUPP);
	path.global = false;
	path.port = 3;
	KUNIT_EXPECT_EQ(test, apm_path_write(ib, &path, &ah), -ENODEV);
	/* A port of another link layer. */
	path.port = 2;
	path.slid = OTHER_LID;
	KUNIT_EXPECT_EQ(test, apm_path_write(ib, &path, &ah), -EOPNOTSUPP);
	path.port = 1;
	path.slid = LID;
	ib->ops.query_port = query_nothing;
	KUNIT_EXPECT_EQ(test, apm_path_write(ib, &path, &ah), -EIO);
}

static void what_cannot_be_read_is_an_error(struct kunit *test)
{
	struct rdma_ah_attr ah = { .type = RDMA_AH_ATTR_TYPE_IB };
	struct ib_device *ib = make_device(test);
	struct apm_path path = { .port = 3 };

	KUNIT_EXPECT_EQ(test, apm_path_read(ib, &ah, 0, &path), -EPROTO);
	path.port = 1;
	ib->ops.query_port = query_nothing;
	KUNIT_EXPECT_EQ(test, apm_path_read(ib, &ah, 0, &path), -EIO);
	/* One of RoCE is not looked into. */
	ah.type = RDMA_AH_ATTR_TYPE_ROCE;
	KUNIT_EXPECT_EQ(test, apm_path_read(ib, &ah, 0, &path), 0);
	KUNIT_EXPECT_EQ(test, path.slid, 0);
}

static void a_path_leads_back_to_a_lid_of_the_port_that_it_leaves_from(struct kunit *test)
{
	struct ib_device *ib = make_device(test);
	struct apm_path path = { .port = 1 };
	unsigned int i;

	for (i = 0; i < 4; i++) {
		path.dlid = LID + i;
		KUNIT_EXPECT_TRUE(test, apm_path_leads_back(ib, &path));
	}
	path.dlid = LID - 1;
	KUNIT_EXPECT_FALSE(test, apm_path_leads_back(ib, &path));
	path.dlid = LID + 4;
	KUNIT_EXPECT_FALSE(test, apm_path_leads_back(ib, &path));
	/* The other port may be in a subnet of its own. */
	path.dlid = OTHER_LID;
	KUNIT_EXPECT_FALSE(test, apm_path_leads_back(ib, &path));
	path.dlid = LID;
	ib->ops.query_port = query_nothing;
	KUNIT_EXPECT_FALSE(test, apm_path_leads_back(ib, &path));
}

static struct kunit_case cases[] = {
	KUNIT_CASE(a_path_is_its_port_and_its_lids),
	KUNIT_CASE(a_path_is_written_with_the_ports_path_bits),
	KUNIT_CASE(a_path_that_is_not_the_ports_is_not_written),
	KUNIT_CASE(what_cannot_be_read_is_an_error),
	KUNIT_CASE(a_path_leads_back_to_a_lid_of_the_port_that_it_leaves_from),
	{}
};

static struct kunit_suite suite = { .name = "apm_path", .test_cases = cases };

kunit_test_suite(suite);
