// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Commands of a firmware that takes its time. A HCA's verbs sleep until its firmware has answered,
 * usually for less than a millisecond, and for many seconds if it hangs. Here a command is done at
 * once, and its answer comes late.
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/string.h>
#include "shca.h"

enum { QUERY, MODIFY, COMMANDS };

static const char *const command_names[COMMANDS] = { "query", "modify" };

/* How long the answer takes: between these, in ms. By the device's number. */
static struct answer_time {
	u32 least, most;
} answer_times[SHCA_DEVICES][COMMANDS];

static void answer_late(struct ib_device *ibdev, unsigned int command)
{
	const struct answer_time *time = &answer_times[to_shca(ibdev)->number][command];
	u32 least = READ_ONCE(time->least), most = READ_ONCE(time->most);

	if (most)
		msleep(least + (most > least ? get_random_u32() % (most - least + 1) : 0));
}

static int query_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask,
		    struct ib_qp_init_attr *init)
{
	struct ib_device *ibdev = qp->device;
	int ret = to_shca(ibdev)->done_at_once.query_qp(qp, attr, mask, init);

	answer_late(ibdev, QUERY);
	return ret;
}

static int modify_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata)
{
	struct ib_device *ibdev = qp->device;
	int ret = to_shca(ibdev)->done_at_once.modify_qp(qp, attr, mask, udata);

	answer_late(ibdev, MODIFY);
	return ret;
}

/* In place of rdmavt's own, which registration has entered. */
void shca_firmware_init(struct shca_dev *dev)
{
	struct ib_device_ops *ops = &dev->rdi.ibdev.ops;

	dev->done_at_once.query_qp = ops->query_qp;
	dev->done_at_once.modify_qp = ops->modify_qp;
	WRITE_ONCE(ops->query_qp, query_qp);
	WRITE_ONCE(ops->modify_qp, modify_qp);
}

/* "NUMBER COMMAND MS [MS]": of device shcaNUMBER, the command's time, or its least and longest. */
static int set_answer_time(const char *text, const struct kernel_param *kp)
{
	unsigned int number, least, most;
	struct answer_time *time;
	char name[8];
	int command;
	int words = sscanf(text, "%u %7s %u %u", &number, name, &least, &most);

	if (words < 3 || number >= SHCA_DEVICES)
		return -EINVAL;
	command = match_string(command_names, COMMANDS, name);
	if (command < 0)
		return command;
	time = &answer_times[number][command];
	WRITE_ONCE(time->least, least);
	WRITE_ONCE(time->most, words > 3 ? most : least);
	return 0;
}

static int show_answer_times(char *page, const struct kernel_param *kp)
{
	unsigned int number, command;
	int length = 0;

	for (number = 0; number < SHCA_DEVICES; number++) {
		for (command = 0; command < COMMANDS; command++) {
			const struct answer_time *time = &answer_times[number][command];

			if (time->most)
				length += scnprintf(page + length, PAGE_SIZE - length,
						    "%u %s %u %u\n", number,
						    command_names[command], time->least,
						    time->most);
		}
	}
	return length;
}

static const struct kernel_param_ops answer_time_ops = {
	.set = set_answer_time,
	.get = show_answer_times,
};

module_param_cb(firmware, &answer_time_ops, NULL, 0600);
MODULE_PARM_DESC(firmware, "How late a command's answer comes: NUMBER query|modify MS [LONGEST_MS]");
