# SPDX-License-Identifier: MIT OR Apache-2.0
# perftest: each operation, latency and bandwidth. The figures are this machine's emulation and mean
# nothing (where perftest finds the clock too irregular they read "inf"); that they are there means
# that every operation completed.

perftest() { # PROGRAM SIZE ITERATIONS
	pair 18600 "$1" -F -s "$2" -n "$3"
	need "^ *$2 +$3 +([0-9.]+|inf) "
	echo "--- server"
	cat "$logs/server.18600"
}

for operation in send write read; do
	full_row "$operation-lat" "ib_${operation}_lat" perftest "ib_${operation}_lat" 8 300
	full_row "$operation-bw" "ib_${operation}_bw" perftest "ib_${operation}_bw" 65536 300
done
full_row atomic-lat ib_atomic_lat perftest ib_atomic_lat 8 300
full_row atomic-bw ib_atomic_bw perftest ib_atomic_bw 8 300
