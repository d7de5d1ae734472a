// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Devices, and the events of their ports. */
#include <linux/slab.h>

#include "apm.h"

static LIST_HEAD(devices);
static DEFINE_MUTEX(devices_mutex);

static int add_device(struct ib_device *ib);
static void remove_device(struct ib_device *ib, void *data);

static struct ib_client client = {
	.name = "apm",
	.add = add_device,
	.remove = remove_device,
};

/* Called by ib_core, from its workqueue. */
static void on_event(struct ib_event_handler *handler, struct ib_event *event)
{
	struct apm_device *dev = container_of(handler, struct apm_device, events);

	if (event->event != IB_EVENT_PORT_ERR || event->element.port_num > 255)
		return;
	set_bit(event->element.port_num, dev->failed_ports);
	queue_work(apm_urgent_wq, &dev->standing);
}

/* Each port of a device may have a link layer of its own. */
static bool has_infiniband(const struct ib_device *ib)
{
	u32 port;

	rdma_for_each_port(ib, port)
		if (rdma_cap_ib_sa(ib, port))
			return true;
	return false;
}

/* Whoever lets the last reference go may be in one of its queues, or where nothing sleeps. */
static void release_device(struct work_struct *work)
{
	struct apm_device *dev = container_of(work, struct apm_device, release);

	apm_queues_exit(&dev->queues);
	kfree_rcu(dev, rcu);
}

static int add_device(struct ib_device *ib)
{
	struct apm_device *dev;
	int ret;

	/* Whether it can migrate paths is told of its queue pairs. */
	if (!has_infiniband(ib))
		return -EOPNOTSUPP;
	dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	if (!dev)
		return -ENOMEM;
	ret = apm_queues_init(&dev->queues, ib->index);
	if (ret) {
		kfree(dev);
		return ret;
	}
	dev->ib = ib;
	refcount_set(&dev->refs, 1);
	INIT_WORK(&dev->standing, apm_standing_work);
	INIT_WORK(&dev->release, release_device);
	mutex_lock(&devices_mutex);
	list_add_tail(&dev->all, &devices);
	mutex_unlock(&devices_mutex);
	ib_set_client_data(ib, &client, dev);
	INIT_IB_EVENT_HANDLER(&dev->events, ib, on_event);
	ib_register_event_handler(&dev->events);
	return 0;
}

static void remove_device(struct ib_device *ib, void *data)
{
	struct apm_device *dev = data;

	ib_unregister_event_handler(&dev->events);
	cancel_work_sync(&dev->standing);
	ib_set_client_data(ib, &client, NULL);
	mutex_lock(&devices_mutex);
	list_del(&dev->all);
	mutex_unlock(&devices_mutex);
	WRITE_ONCE(dev->leaving, true);
	/* For probes that found the data. */
	synchronize_rcu();
	apm_peer_forget_device(dev);
	apm_qp_forget_device(dev);
	/* These want to know who may use the device. */
	apm_queues_flush(&dev->queues);
	WRITE_ONCE(dev->gone, true);
	/* For whoever is in apm_device_hold(). */
	synchronize_rcu();
	apm_device_put(dev);
}

/* For probes: with preemption disabled. */
struct apm_device *apm_device_of(struct ib_device *ib)
{
	return ib_get_client_data(ib, &client);
}

/* With a reference, or NULL. */
struct apm_device *apm_device_by_index(u32 index)
{
	struct apm_device *dev, *found = NULL;

	mutex_lock(&devices_mutex);
	list_for_each_entry(dev, &devices, all) {
		if (dev->ib->index == index) {
			refcount_inc(&dev->refs);
			found = dev;
			break;
		}
	}
	mutex_unlock(&devices_mutex);
	return found;
}

/* The device, which does not go before ib_device_put(); NULL if it is going. */
struct ib_device *apm_device_hold(struct apm_device *dev)
{
	struct ib_device *ib = NULL;

	rcu_read_lock();
	if (!READ_ONCE(dev->gone) && ib_device_try_get(dev->ib))
		ib = dev->ib;
	rcu_read_unlock();
	return ib;
}

void apm_device_put(struct apm_device *dev)
{
	if (refcount_dec_and_test(&dev->refs))
		queue_work(apm_urgent_wq, &dev->release);
}

/* Of IB_DEVICE_NAME_MAX bytes; empty if the device is going. Sleeps nowhere. */
void apm_device_name(struct apm_device *dev, char *name)
{
	struct ib_device *ib = apm_device_hold(dev);

	name[0] = '\0';
	if (!ib)
		return;
	strscpy(name, dev_name(&ib->dev), IB_DEVICE_NAME_MAX);
	ib_device_put(ib);
}

int apm_devices_init(void)
{
	return ib_register_client(&client);
}

void apm_devices_exit(void)
{
	ib_unregister_client(&client);
	apm_qp_wait_for_last();
}
