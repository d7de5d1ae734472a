// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * shca: software InfiniBand HCAs on an emulated subnet, for testing.
 */
#include <linux/module.h>
#include <linux/slab.h>
#include "shca.h"

static LIST_HEAD(devices);

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

static int create_ports(struct shca_dev *dev, const struct fabric_hca *hca)
{
	u32 i;

	for (i = 0; i < hca->ports; i++) {
		struct shca_port *port = &dev->port[i];
		struct fabric_port *fp;

		port->dev = dev;
		port->num = i + 1;
		shca_copies_init(port);
		/* rvt_create_mad_agents() would, for the ports of dparms.nports. */
		spin_lock_init(&port->rvp.lock);
		rvt_init_port(&dev->rdi, &port->rvp, i, port->rvt_pkeys);
		fp = fabric_port_create(dev, hca, i + 1);
		if (!fp)
			return -ENOMEM;
		port->fabric = fp;
	}
	return 0;
}

static void free_device(struct shca_dev *dev)
{
	struct platform_device *parent = dev->parent;

	destroy_ports(dev);
	if (dev->wq)
		destroy_workqueue(dev->wq);
	xa_destroy(&dev->qpns);
	kfree(dev->pci);
	rvt_dealloc_device(&dev->rdi);
	platform_device_unregister(parent);
}

static struct shca_dev *alloc_device(const struct fabric_hca *hca)
{
	struct rvt_dev_info *rdi;
	struct shca_dev *dev;

	rdi = rvt_alloc_device(sizeof(*dev), hca->ports);
	if (!rdi)
		return ERR_PTR(-ENOMEM);
	dev = to_shca(&rdi->ibdev);
	dev->number = hca->index;
	xa_init_flags(&dev->qpns, XA_FLAGS_ALLOC);
	/* rdmavt registers it by this name, and had a function to set it up to Linux 7. */
	dev_set_name(&rdi->ibdev.dev, "%s", hca->name);
	strscpy(rdi->ibdev.name, hca->name, IB_DEVICE_NAME_MAX);
	return dev;
}

static int setup_device(struct shca_dev *dev, const struct fabric_hca *hca)
{
	struct rvt_dev_info *rdi = &dev->rdi;
	struct ib_device *ibdev = &rdi->ibdev;
	int err;

	dev->parent = platform_device_register_simple("shca", hca->index, NULL, 0);
	if (IS_ERR(dev->parent))
		return PTR_ERR(dev->parent);
	ibdev->dev.parent = &dev->parent->dev;
	dev->wq = alloc_workqueue("%s", SHCA_WQ_PERCPU | WQ_HIGHPRI | WQ_MEM_RECLAIM, 0, hca->name);
	dev->pci = kzalloc(sizeof(*dev->pci), GFP_KERNEL);
	if (!dev->wq || !dev->pci)
		return -ENOMEM;
	/* Not dev_name(): registration reallocates that. */
	strscpy(dev->name, hca->name, sizeof(dev->name));
	dev->pci->dev.init_name = dev->name;

	shca_set_limits(&rdi->dparms, fabric_guid(hca->system, 0));
	rdi->driver_f = shca_rvt_ops;
	rdi->post_parms = shca_post_parms;
	rdi->wc_opcode = shca_wc_opcode;
	ibdev->phys_port_cnt = hca->ports;
	ibdev->node_guid = fabric_guid(hca->index, 0);
	ibdev->num_comp_vectors = num_possible_cpus();
	strscpy(ibdev->node_desc, dev_name(&ibdev->dev), sizeof(ibdev->node_desc));
	ib_set_device_ops(ibdev, &shca_ops);
	err = shca_quirks_init(dev);
	if (err)
		return err;

	err = create_ports(dev, hca);
	if (err)
		return err;
	shca_quirks_ports(dev);
	err = rvt_register_device(rdi);
	if (err)
		return err;
	shca_firmware_init(dev);
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
	struct shca_dev *dev, *next;

	list_for_each_entry_safe(dev, next, &devices, list)
		remove_device(dev);
	fabric_exit();
	shca_packets_exit();
}

static int add_device(const struct fabric_hca *hca)
{
	struct shca_dev *dev = alloc_device(hca);
	int err;

	if (IS_ERR(dev))
		return PTR_ERR(dev);
	err = setup_device(dev, hca);
	if (err) {
		free_device(dev);
		return err;
	}
	list_add_tail(&dev->list, &devices);
	return 0;
}

static int __init shca_init(void)
{
	struct fabric_hca hca;
	unsigned int i;
	int err;

	err = shca_packets_init();
	if (err)
		return err;
	err = fabric_init();
	if (err) {
		shca_packets_exit();
		return err;
	}
	for (i = 0; fabric_hca(i, &hca) && !err; i++)
		err = add_device(&hca);
	if (err)
		remove_all();
	return err;
}

static void __exit shca_exit(void)
{
	remove_all();
}

module_init(shca_init);
module_exit(shca_exit);

MODULE_DESCRIPTION("Software InfiniBand HCAs on an emulated subnet");
MODULE_LICENSE("Dual BSD/GPL");
