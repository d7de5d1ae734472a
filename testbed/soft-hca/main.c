// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * shca: software InfiniBand HCAs on an emulated subnet, for testing.
 */
#include <linux/module.h>
#include <linux/slab.h>
#include "shca.h"

#define MAX_DEVICES 8

static unsigned int ndev = 3;
module_param(ndev, uint, 0444);
MODULE_PARM_DESC(ndev, "number of HCAs, each with two ports (1 to 8)");

static struct shca_dev *devices[MAX_DEVICES];

/* Locally administered EUI-64s: 02 53 48 43 41 00 <device> <port, 0 for the node>. */
static __be64 make_guid(unsigned int index, unsigned int port_num)
{
	return cpu_to_be64(0x0253484341000000ULL | (index + 1) << 8 | port_num);
}

void shca_port_event(struct shca_dev *dev, u32 port_num, enum ib_event_type type)
{
	struct ib_event event = {
		.device = &dev->rdi.ibdev,
		.element.port_num = port_num,
		.event = type,
	};

	/* QPs are not touched: on a dead port they time out, as on hardware. */
	if (READ_ONCE(dev->tells))
		ib_dispatch_event(&event);
}

static void destroy_ports(struct shca_dev *dev)
{
	u32 i;

	for (i = 0; i < SHCA_PORTS; i++) {
		if (!dev->port[i].fabric)
			continue;
		shca_copies_stop(&dev->port[i]);
		fabric_port_destroy(dev->port[i].fabric);
	}
}

static int create_ports(struct shca_dev *dev, unsigned int index)
{
	u32 i;

	for (i = 0; i < SHCA_PORTS; i++) {
		struct shca_port *port = &dev->port[i];
		struct fabric_port *fp;

		port->dev = dev;
		port->num = i + 1;
		shca_copies_init(port);
		/* rvt_create_mad_agents() would, for the ports of dparms.nports. */
		spin_lock_init(&port->rvp.lock);
		rvt_init_port(&dev->rdi, &port->rvp, i, port->rvt_pkeys);
		fp = fabric_port_create(dev, index, i + 1, make_guid(index, 0),
					make_guid(index, i + 1));
		if (IS_ERR_OR_NULL(fp))
			return fp ? PTR_ERR(fp) : -ENOMEM;
		port->fabric = fp;
	}
	return 0;
}

static void free_device(struct shca_dev *dev)
{
	destroy_ports(dev);
	if (dev->wq)
		destroy_workqueue(dev->wq);
	xa_destroy(&dev->qpns);
	kfree(dev->pci);
	rvt_dealloc_device(&dev->rdi);
}

static struct shca_dev *alloc_device(unsigned int index)
{
	struct rvt_dev_info *rdi;
	struct shca_dev *dev;

	rdi = rvt_alloc_device(sizeof(*dev), SHCA_PORTS);
	if (!rdi)
		return ERR_PTR(-ENOMEM);
	dev = to_shca(&rdi->ibdev);
	xa_init_flags(&dev->qpns, XA_FLAGS_ALLOC);
	rvt_set_ibdev_name(rdi, "%s%d", "shca", index);
	return dev;
}

static int setup_device(struct shca_dev *dev, unsigned int index)
{
	struct rvt_dev_info *rdi = &dev->rdi;
	struct ib_device *ibdev = &rdi->ibdev;
	int err;

	dev->wq = alloc_workqueue("shca%u", WQ_HIGHPRI | WQ_MEM_RECLAIM, 0, index);
	dev->pci = kzalloc(sizeof(*dev->pci), GFP_KERNEL);
	if (!dev->wq || !dev->pci)
		return -ENOMEM;
	/* Not dev_name(): registration reallocates that. */
	snprintf(dev->name, sizeof(dev->name), "shca%u", index);
	dev->pci->dev.init_name = dev->name;

	shca_set_limits(&rdi->dparms, make_guid(index, 0));
	rdi->driver_f = shca_rvt_ops;
	rdi->post_parms = shca_post_parms;
	rdi->wc_opcode = shca_wc_opcode;
	ibdev->phys_port_cnt = SHCA_PORTS;
	ibdev->node_guid = make_guid(index, 0);
	ibdev->num_comp_vectors = num_possible_cpus();
	strscpy(ibdev->node_desc, dev_name(&ibdev->dev), sizeof(ibdev->node_desc));
	ib_set_device_ops(ibdev, &shca_ops);

	err = create_ports(dev, index);
	if (err)
		return err;
	err = rvt_register_device(rdi);
	if (err)
		return err;
	WRITE_ONCE(dev->hears, true);
	WRITE_ONCE(dev->tells, true);
	return 0;
}

static void remove_device(struct shca_dev *dev)
{
	WRITE_ONCE(dev->tells, false);
	/* While clients take leave of the subnet, its answers must still come in. */
	ib_unregister_device(&dev->rdi.ibdev);
	/* The rest of rvt_unregister_device() frees the QP table, where packets look. */
	WRITE_ONCE(dev->hears, false);
	synchronize_rcu();
	rvt_unregister_device(&dev->rdi);
	free_device(dev);
}

static void remove_all(void)
{
	unsigned int i;

	for (i = 0; i < ndev; i++)
		if (devices[i])
			remove_device(devices[i]);
	fabric_exit();
}

static int __init shca_init(void)
{
	unsigned int i;
	int err;

	if (ndev < 1 || ndev > MAX_DEVICES) {
		pr_err("shca: ndev must be 1 to %d\n", MAX_DEVICES);
		return -EINVAL;
	}
	err = fabric_init();
	if (err)
		return err;
	for (i = 0; i < ndev; i++) {
		struct shca_dev *dev = alloc_device(i);

		err = PTR_ERR_OR_ZERO(dev);
		if (!err) {
			err = setup_device(dev, i);
			if (err)
				free_device(dev);
		}
		if (err) {
			remove_all();
			return err;
		}
		devices[i] = dev;
	}
	return 0;
}

static void __exit shca_exit(void)
{
	remove_all();
}

module_init(shca_init);
module_exit(shca_exit);

MODULE_DESCRIPTION("Software InfiniBand HCAs on an emulated subnet");
MODULE_LICENSE("Dual BSD/GPL");
