#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two daemons reduce over a veth while tshark captures it; the Lua dissector understands every
# packet, and finds one byte that was changed.
. "$(dirname "$0")/../_init.sh"
. "$(dirname "$0")/../_dissector.sh"

command -v tshark >/dev/null || skip "tshark is not installed (packages.debian, [observe])"
# Another user's settings and plugins do not count here.
export XDG_CONFIG_HOME=$run_dir/config HOME=$run_dir

make_namespaces 1500
daemon_netns[0]=$netns_a
daemon_netns[1]=$netns_b
daemon_write_config 0 "net_af_packet0=10.79.0.1/24"
daemon_write_config 1 "net_af_packet0=10.79.0.2/24"
daemon_start 0 --vdev net_af_packet0,iface=gwa,blocksz=65536,framesz=2048,framecnt=512
daemon_start 1 --vdev net_af_packet0,iface=gwb,blocksz=65536,framesz=2048,framecnt=512
for i in 0 1; do
  daemon_wait_ready "$i" || fail "the daemons do not start over af_packet"
done

background capture ip netns exec "$netns_a" tshark -q -i gwa -f udp -w "$run_dir/gradwire.pcapng"
eventually 20 grep -q "Capturing on" "$run_dir/capture.out" || fail "tshark does not capture"
expect "sums while tshark captures" "$python" "$programs/sums.py" \
  --sizes 1,1000,20000,140000 $(sockets 2)
sleep 1
kill -INT "${background[capture]}"
ended capture || true

# read_capture FILE OPTION...
read_capture() {
  dissect -r "$1" "${@:2}" 2>"$run_dir/tshark.err"
}
fields=()
for field in type lane number group_tag op_seq chunk hop datatype redop from_rank to_rank \
  nranks range.last completed_op_seq; do
  fields+=(-e "gradwire.$field")
done
udp=$(tshark -r "$run_dir/gradwire.pcapng" -Y udp 2>/dev/null | wc -l)
read_capture "$run_dir/gradwire.pcapng" -Y gradwire -T fields -E separator=, -E occurrence=f \
  "${fields[@]}" -e _ws.expert.message -e udp.length >"$run_dir/fields"
if grep -i lua "$run_dir/tshark.err"; then fail "the dissector itself has an error"; fi
(($(wc -l <"$run_dir/fields") == udp)) ||
  fail "$udp packets of UDP, $(wc -l <"$run_dir/fields") of them understood"
expect "every packet is what doc/protocol says" \
  "$python" "$programs/dissector.py" "$run_dir/fields"
read_capture "$run_dir/gradwire.pcapng" >"$run_dir/lines"
expect_text "the info column says what it is" \
  'gradwire .*data from rank [01] lane 0 #[0-9]+: op 1 chunk [0-9]+ hop 0, [0-9]+ bytes of sum' \
  "$run_dir/lines"

# One payload byte of a data packet is changed: its CRC says so.
read_capture "$run_dir/gradwire.pcapng" -F pcap -w "$run_dir/one.pcap" \
  -Y 'gradwire.type == 3 && gradwire.hop == 0' -c 20
"$python" - "$run_dir/one.pcap" "$run_dir/changed.pcap" <<'PYTHON'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
data[-1] ^= 1
open(sys.argv[2], "wb").write(data)
PYTHON
read_capture "$run_dir/changed.pcap" >"$run_dir/changed"
expect_text "a changed byte is found" 'payload CRC wrong' "$run_dir/changed"

# The same packets over IPv6, of which the last has another CRC than its addresses say.
"$python" "$programs/over_ipv6.py" "$run_dir/one.pcap" "$run_dir/ipv6.pcap"
read_capture "$run_dir/ipv6.pcap" -T fields -e gradwire.number -e _ws.expert.message \
  -e ipv6.dst >"$run_dir/ipv6"
understood=$(awk -F '\t' '$1 != "" && $2 == "" && $3 == "fd79::2"' "$run_dir/ipv6" | wc -l)
all=$(wc -l <"$run_dir/ipv6")
((all > 1 && understood == all - 1)) ||
  { cat "$run_dir/ipv6" && fail "of $all packets over IPv6 the dissector understands $understood"; }

# Packets of tiles, which no daemon sends yet, as the peer of test/peer makes them.
"$python" "$programs/tile_packets.py" "$run_dir/tiles.pcap"
fields=()
for field in type again op_seq total_count chunk collective since tile.echo tile.format tile.asks \
  tile.result tile.not_entered tile.first tile.grant tile.done tile.over tile.results tile.repair \
  tile.all tile.wanted; do
  fields+=(-e "gradwire.$field")
done
read_capture "$run_dir/tiles.pcap" -T fields -E separator='|' -E occurrence=a \
  "${fields[@]}" -e _ws.expert.message |
  sed 's/\bTrue\b/1/g; s/\bFalse\b/0/g' >"$run_dir/tiles" # as Wireshark 4.4 says it
cat >"$run_dir/tiles.wanted" <<TEXT
16|0|1|16|7|0|0||0|0|0|0|||||||||
17|0|1|16||0|1|9|2|1|0|0|||||||||
18|0|1|||||0||1|||0|200|3|1|0|1|0|0x0000000000000000,\
0x0000000000000000,0x0000000000000000,0x0000000000000080|
16|0|2|1099511627776|6|4|0||0|0|1|0|||||||||
17|1|3|0||0|0|9|0|0|0|1|||||||||
18|0|4|||||0||0|||0|0|0|0|1|0|1||
TEXT
diff "$run_dir/tiles.wanted" "$run_dir/tiles" || fail "packets of tiles are not shown as they are"
