// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * qp_churn [-s SEED] [-t SECONDS] [-n PAIRS]: RC queue pairs that go to Error, to Reset, or are
 * destroyed, in mid-flight, whose memory is deregistered under them and whose processes are
 * killed, while cables are pulled and packets lost. It judges the software HCA.
 *
 * Each pair is a process on shca0 and one on shca1 (see churn_round.h), every other one on port 2.
 * Ends with "PASS" and a tally, or says what is wrong.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "churn_round.h"

#define MAX_PAIRS 16

struct pair {
	pid_t process[2];
	atomic_uint *deregistered;	/* by side: in which round */
};

static const char *const devices[2] = { "shca0", "shca1" };
static struct pair pairs[MAX_PAIRS];
static struct tally *tally;
static uint64_t chances;

static void *shared_memory(size_t size)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		die("mmap");
	return at;
}

/* ---- pairs ---- */

static pid_t start_side(struct pair *pair, int side, const int sockets[2])
{
	struct side s = {
		.tally = tally, .device = devices[side], .port = 1 + (pair - pairs) % 2,
		.socket = sockets[side], .random = mix(chances + side),
		.deregistered = &pair->deregistered[side],
		.peer_deregistered = &pair->deregistered[!side],
	};
	pid_t child = fork();

	if (child < 0)
		die("fork");
	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(sockets[!side]);
	exit(side_main(&s));
}

static void start_pair(struct pair *pair)
{
	int sockets[2], side;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets))
		die("socketpair");
	chance(&chances, 1);
	for (side = 0; side < 2; side++) {
		pair->deregistered[side] = 0;
		pair->process[side] = start_side(pair, side, sockets);
	}
	close(sockets[0]);
	close(sockets[1]);
}

/* Whether the process ended, and not on its own account other than well. */
static bool reap(pid_t process)
{
	int64_t until = now_ms() + PATIENCE_MS;
	int status;

	while (!waitpid(process, &status, WNOHANG)) {
		if (now_ms() > until)
			return bad("process %d hangs", process);
		pause_ms(5);
	}
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return true;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		return true;
	return bad("process %d ended with status 0x%x", process, status);
}

static bool reap_pair(struct pair *pair)
{
	bool first = reap(pair->process[0]);

	return reap(pair->process[1]) && first;
}

/* One of the two, or both. The other one notices. */
static bool kill_pair(struct pair *pair)
{
	unsigned int which = 1 + chance(&chances, 3);

	if (which & 1)
		kill(pair->process[0], SIGKILL);
	if (which & 2)
		kill(pair->process[1], SIGKILL);
	tally->kills++;
	return reap_pair(pair);
}

/* ---- cables ---- */

static bool spoil(uint64_t *random, unsigned int what)
{
	struct end end = { .name = devices[chance(random, 2)] };
	int port = 1 + chance(random, 2);
	int ms = 50 + chance(random, 250);

	switch (what % 4) {
	case 0:
		tally->pulls++;
		if (!cable("pull", &end, port))
			return false;
		pause_ms(ms);
		return cable("plug", &end, port);
	case 1:
		if (!cable(chance(random, 2) ? "blackhole" : "blackhole-tx", &end, port))
			return false;
		break;
	default:
		if (!cable_loss(&end, port, 1 + chance(random, 5)))
			return false;
		ms *= 3;
	}
	pause_ms(ms);
	return cable("heal", &end, port);
}

static pid_t start_cables(void)
{
	uint64_t random = mix(~chances);
	unsigned int what = 0;
	pid_t child = fork();

	if (child < 0)
		die("fork");
	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!tally->stop) {
		if (!spoil(&random, what++)) {
			printf("FAIL %s\n", why);
			exit(1);
		}
		pause_ms(chance(&random, 300));
	}
	exit(0);
}

/* ---- all of it ---- */

static bool churn(int count, int seconds)
{
	int64_t until = now_ms() + 1000 * seconds;
	bool ok = true;
	pid_t cables;
	int i;

	for (i = 0; i < count; i++)
		start_pair(&pairs[i]);
	cables = start_cables();
	while (ok && !tally->failed && now_ms() < until) {
		struct pair *pair = &pairs[chance(&chances, count)];

		pause_ms(50 + chance(&chances, 400));
		ok = kill_pair(pair);
		start_pair(pair);
	}
	tally->stop = true;
	for (i = 0; i < count; i++)
		ok = reap_pair(&pairs[i]) && ok;
	return reap(cables) && ok && !tally->failed;
}

static bool enough(void)
{
	int i;

	for (i = 0; i < BREAKINGS; i++)
		if (!tally->broken[i])
			return bad("no round was ended in way %d", i);
	return (tally->verified && tally->flushed && tally->exhausted && tally->kept &&
		tally->kills && tally->pulls) ||
	       bad("too little has happened");
}

static void print_tally(void)
{
	printf("rounds: %lu (to the end %lu, error %lu, reset %lu, destroy %lu, deregister %lu), "
	       "%lu with the next one's QP\n", tally->rounds, tally->broken[COMPLETE],
	       tally->broken[TO_ERROR], tally->broken[TO_RESET], tally->broken[DESTROY],
	       tally->broken[DEREGISTER], tally->kept);
	printf("completions: %lu verified, %lu flushed, %lu retries exhausted, %lu denied\n",
	       tally->verified, tally->flushed, tally->exhausted, tally->denied);
	printf("kills: %lu, cables pulled: %lu\n", tally->kills, tally->pulls);
}

int main(int argc, char **argv)
{
	int option, count = 4, seconds = 6, i;
	uint64_t seed = time(NULL);

	while ((option = getopt(argc, argv, "s:t:n:")) != -1) {
		switch (option) {
		case 's':
			seed = strtoull(optarg, NULL, 0);
			break;
		case 't':
			seconds = atoi(optarg);
			break;
		case 'n':
			count = atoi(optarg);
			break;
		default:
			return 2;
		}
	}
	if (count < 1 || count > MAX_PAIRS)
		return 2;
	printf("seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	chances = mix(seed);
	tally = shared_memory(sizeof(*tally));
	for (i = 0; i < count; i++)
		pairs[i].deregistered = shared_memory(2 * sizeof(atomic_uint));
	if (!churn(count, seconds) || !enough()) {
		print_tally();
		printf("FAIL %s\n", why[0] ? why : "see above");
		return 1;
	}
	print_tally();
	printf("PASS\n");
	return 0;
}
