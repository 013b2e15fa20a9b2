-- SPDX-License-Identifier: BSD-3-Clause
-- Shows gradwire's chunk protocol (doc/protocol) in Wireshark and tshark:
--
--   tshark -X lua_script:scripts/wireshark/gradwire.lua -r FILE -Y gradwire
--
-- or put it into Wireshark's folder of personal Lua plugins. A UDP datagram is taken for gradwire's
-- by its header's CRC32C, so no port has to be configured; "Decode As" gradwire shows one whose CRC
-- is wrong, and says so.

local gradwire = Proto("gradwire", "gradwire chunk protocol")

local TYPES = {
  [1] = "hello", [2] = "hello-ack", [3] = "data", [4] = "ping",
  [5] = "ack", [6] = "abort", [7] = "bye", [8] = "bye-ack",
  [9] = "progress check", [10] = "contribution", [11] = "receipt", [12] = "inquiry",
  [13] = "piece", [14] = "offer", [15] = "pull",
  [16] = "tile piece", [17] = "tile call", [18] = "tile pull",
}
local DATATYPES = {
  [0] = "fp32", [1] = "fp64", [2] = "fp16", [3] = "bf16",
  [4] = "int8", [5] = "int32", [6] = "int64", [7] = "uint8",
}
local COLLECTIVES = {
  [0] = "all-reduce", [2] = "reduce", [3] = "broadcast", [4] = "all-gather", [5] = "reduce-scatter",
}
local REDOPS = { [0] = "sum", [1] = "avg", [2] = "min", [3] = "max", [4] = "prod",
                 [5] = "band", [6] = "bor", [7] = "bxor", [8] = "premul_sum" }
local ABORTS = {
  [1] = "silence", [2] = "mismatch", [3] = "client died", [4] = "client abort",
  [5] = "daemon stopped", [6] = "peer left", [7] = "reduce failed", [8] = "formation",
  [9] = "protocol", [10] = "stuck",
}
local CALLS = { [0] = "send and recv", [1] = "all-to-all", [2] = "gather", [3] = "scatter" }
local FORMATS = { [0] = "same", [1] = "bf16", [2] = "int8" }
local HEADER_BYTES = 64
local TAG_BYTES = 16

local f = {
  version = ProtoField.uint8("gradwire.version", "Version"),
  type = ProtoField.uint8("gradwire.type", "Type", base.DEC, TYPES),
  flags = ProtoField.uint8("gradwire.flags", "Flags", base.HEX),
  again = ProtoField.bool("gradwire.again", "Asked again", 8, nil, 0x01),
  authenticated = ProtoField.bool("gradwire.authenticated", "Authenticated", 8, nil, 0x02),
  encrypted = ProtoField.bool("gradwire.encrypted", "Encrypted", 8, nil, 0x04),
  lane = ProtoField.uint8("gradwire.lane", "Lane"),
  group_tag = ProtoField.uint32("gradwire.group_tag", "Group tag", base.HEX),
  number = ProtoField.uint64("gradwire.number", "Packet number"),
  header_crc = ProtoField.uint32("gradwire.header_crc", "CRC32C of the header", base.HEX),
  payload_crc = ProtoField.uint32("gradwire.payload_crc", "CRC32C of the payload", base.HEX),
  token = ProtoField.uint64("gradwire.token", "Token of the link", base.HEX),
  payload = ProtoField.bytes("gradwire.payload", "Payload"),
  seal_tag = ProtoField.bytes("gradwire.seal_tag", "Tag of the seal"),
  -- data
  op_seq = ProtoField.uint64("gradwire.op_seq", "op_seq"),
  total_count = ProtoField.uint64("gradwire.total_count", "Total count"),
  chunk = ProtoField.uint32("gradwire.chunk", "Chunk"),
  tag = ProtoField.uint32("gradwire.tag", "Tag"),
  hop = ProtoField.uint16("gradwire.hop", "Hop"),
  datatype = ProtoField.uint8("gradwire.datatype", "Datatype", base.DEC, DATATYPES, 0x0f),
  collective = ProtoField.uint8("gradwire.collective", "Collective", base.DEC, COLLECTIVES, 0xf0),
  root = ProtoField.uint16("gradwire.root", "Root process, and 1"),
  redop = ProtoField.uint8("gradwire.redop", "Redop", base.DEC, REDOPS),
  -- contribution, receipt, inquiry
  step = ProtoField.uint8("gradwire.step", "Step of a gathered op, and 1"),
  since = ProtoField.uint8("gradwire.since", "Ops since the last contribution there"),
  received_below = ProtoField.uint16("gradwire.received_below", "Received: less than op_seq by, and 1"),
  entered = ProtoField.uint64("gradwire.entered", "Entered"),
  received = ProtoField.uint64("gradwire.received", "Received"),
  chunks = ProtoField.uint64("gradwire.chunks", "Chunks of the next direct op", base.HEX),
  delay_us = ProtoField.uint16("gradwire.delay_us", "Delay (us)"),
  echo = ProtoField.uint32("gradwire.echo", "Newest number, low half"),
  -- piece, offer, pull
  stream = ProtoField.uint16("gradwire.stream", "Stream of the pair"),
  sequence = ProtoField.uint64("gradwire.sequence", "Sequence of the stream's transfers"),
  bytes = ProtoField.uint64("gradwire.bytes", "Bytes of the transfer"),
  source = ProtoField.uint16("gradwire.source", "Source process"),
  destination = ProtoField.uint16("gradwire.destination", "Destination process"),
  call = ProtoField.uint8("gradwire.call", "Call", base.DEC, CALLS),
  asks = ProtoField.bool("gradwire.asks", "Asks for an answer", 8, nil, 1),
  done = ProtoField.bool("gradwire.done", "Done at the source", 8, nil, 2),
  complete = ProtoField.bool("gradwire.complete", "All has come", 8, nil, 2),
  wanted = ProtoField.uint64("gradwire.wanted", "Wanted chunks, from the first on", base.HEX),
  first_chunk = ProtoField.uint32("gradwire.first_chunk", "First chunk that has not come"),
  offer_echo = ProtoField.uint32("gradwire.offer_echo", "Number of the offer that it answers"),
  -- tile piece, tile call, tile pull
  tile_echo = ProtoField.uint32("gradwire.tile.echo", "Number of the packet that it answers, low half"),
  format = ProtoField.uint8("gradwire.tile.format", "Format", base.DEC, FORMATS, 0xf0),
  tile_asks = ProtoField.bool("gradwire.tile.asks", "Asks for an answer", 8, nil, 1),
  result = ProtoField.bool("gradwire.tile.result", "A result", 8, nil, 2),
  not_entered = ProtoField.bool("gradwire.tile.not_entered", "The op has not entered", 8, nil, 4),
  first_tile_chunk = ProtoField.uint32("gradwire.tile.first", "First chunk that has not come"),
  grant = ProtoField.uint32("gradwire.tile.grant", "First chunk that may not be sent"),
  tiles_done = ProtoField.uint32("gradwire.tile.done", "Tiles that are folded"),
  over = ProtoField.uint16("gradwire.tile.over", "Over here: less than op_seq by, and 1"),
  results = ProtoField.bool("gradwire.tile.results", "Pulls results", 8, nil, 2),
  repair = ProtoField.bool("gradwire.tile.repair", "Asks for chunks again", 8, nil, 4),
  all = ProtoField.bool("gradwire.tile.all", "All has come", 8, nil, 8),
  again_wanted = ProtoField.uint64("gradwire.tile.wanted", "Wanted again, 64 chunks each", base.HEX),
  -- acknowledgement
  credit = ProtoField.uint64("gradwire.credit_chunks", "Credit"),
  posted = ProtoField.uint64("gradwire.posted_op_seq", "posted_op_seq"),
  posted_onwards = ProtoField.uint16("gradwire.posted_onwards", "Posted onwards: less by, and 1"),
  posted_by_all = ProtoField.uint16("gradwire.posted_by_all", "Posted by all: less by, and 1"),
  delay = ProtoField.uint32("gradwire.delay_ns", "Delay (ns)"),
  ecn_ce = ProtoField.uint32("gradwire.ecn_ce_count", "Packets that came with CE"),
  ranges = ProtoField.uint8("gradwire.range_count", "Ranges"),
  called = ProtoField.uint64("gradwire.called.op_seq", "Called as op"),
  calls = ProtoField.uint64("gradwire.called.digest", "Digest of the calls up to it", base.HEX),
  called_count = ProtoField.uint64("gradwire.called.count", "Its elements"),
  called_root = ProtoField.uint16("gradwire.called.root", "Its root, and 1"),
  called_tag = ProtoField.uint32("gradwire.called.tag", "Its tag"),
  called_kinds = ProtoField.uint8("gradwire.called.kinds", "Its collective and datatype", base.HEX),
  called_redop = ProtoField.uint8("gradwire.called.redop", "Its redop", base.DEC, REDOPS),
  called_format = ProtoField.uint8("gradwire.called.format", "Its format", base.DEC, FORMATS),
  asked = ProtoField.uint64("gradwire.asked_op_seq", "Asks what was called as op"),
  first = ProtoField.uint64("gradwire.range.first", "First"),
  last = ProtoField.uint64("gradwire.range.last", "Last"),
  -- hello
  group = ProtoField.uint64("gradwire.group", "Group id", base.HEX),
  epoch = ProtoField.uint32("gradwire.epoch", "Epoch"),
  features = ProtoField.uint32("gradwire.features", "Features", base.HEX),
  incarnation = ProtoField.uint64("gradwire.incarnation", "Incarnation", base.HEX),
  digest = ProtoField.uint64("gradwire.table_digest", "Table digest", base.HEX),
  payload_bytes = ProtoField.uint32("gradwire.payload_bytes", "Payload bytes of the group"),
  from_rank = ProtoField.uint16("gradwire.from_rank", "From rank"),
  to_rank = ProtoField.uint16("gradwire.to_rank", "To rank"),
  nranks = ProtoField.uint16("gradwire.nranks", "Ranks"),
  lanes = ProtoField.uint16("gradwire.lanes", "Lanes"),
  source = ProtoField.uint8("gradwire.source", "Source port, its index and 1"),
  heard_source = ProtoField.uint8("gradwire.heard_source", "Heard source port, its index and 1"),
  members = ProtoField.uint16("gradwire.members", "Members of each rank"),
  folding_ranks = ProtoField.uint16("gradwire.folding_ranks", "Ranks without members"),
  -- abort, bye
  code = ProtoField.uint8("gradwire.abort.code", "Code", base.DEC, ABORTS),
  culprit = ProtoField.uint16("gradwire.abort.culprit", "Culprit rank"),
  reporter = ProtoField.uint16("gradwire.abort.reporter", "Reporter rank"),
  duration = ProtoField.uint64("gradwire.abort.duration_ns", "Waited (ns)"),
  detail = ProtoField.string("gradwire.abort.detail", "Detail", base.UNICODE),
  completed = ProtoField.uint64("gradwire.completed_op_seq", "completed_op_seq"),
  posted_by_all = ProtoField.uint64("gradwire.bye.posted_by_all", "Posted by all up to op"),
  stalled = ProtoField.uint64("gradwire.check.stalled_ns", "Nothing moved for (ns)"),
  origin = ProtoField.uint16("gradwire.check.origin_rank", "Origin rank"),
}
for _, field in pairs(f) do gradwire.fields[#gradwire.fields + 1] = field end

local bad_header_crc = ProtoExpert.new("gradwire.bad_header_crc", "The header's CRC is wrong",
                                       expert.group.CHECKSUM, expert.severity.ERROR)
local bad_payload_crc = ProtoExpert.new("gradwire.bad_payload_crc", "The payload's CRC is wrong",
                                        expert.group.CHECKSUM, expert.severity.ERROR)
local short = ProtoExpert.new("gradwire.short", "Shorter than its fields say",
                              expert.group.MALFORMED, expert.severity.ERROR)
gradwire.experts = { bad_header_crc, bad_payload_crc, short }

-- CRC32C, reflected. TABLES[k] has what a byte is worth k bytes before the end of a piece, so that
-- 16 bytes take one look at each and three calls: in Lua the calls are what takes time.
local PIECE = 16
local TABLES = {}
for k = 0, PIECE - 1 do TABLES[k] = {} end
local CRC_TABLE = TABLES[0]
for i = 0, 255 do
  local crc = i
  for _ = 1, 8 do
    local low = bit.band(crc, 1)
    crc = bit.rshift(crc, 1)
    if low == 1 then crc = bit.bxor(crc, 0x82f63b78) end
  end
  CRC_TABLE[i] = crc
end
for k = 1, PIECE - 1 do
  for i = 0, 255 do
    local crc = TABLES[k - 1][i]
    TABLES[k][i] = bit.bxor(bit.rshift(crc, 8), CRC_TABLE[bit.band(crc, 0xff)])
  end
end
local T1, T2, T3, T4, T5, T6, T7, T8 = TABLES[15], TABLES[14], TABLES[13], TABLES[12], TABLES[11],
                                       TABLES[10], TABLES[9], TABLES[8]
local T9, T10, T11, T12, T13, T14, T15 = TABLES[7], TABLES[6], TABLES[5], TABLES[4], TABLES[3],
                                         TABLES[2], TABLES[1]
local byte, bxor = string.byte, bit.bxor
local function crc32c(bytes)
  local crc = -1
  local whole = #bytes - #bytes % PIECE
  for at = 1, whole, PIECE do
    local a, b, c, d, e, g, h, i, j, k, l, m, n, o, p, q = byte(bytes, at, at + PIECE - 1)
    -- The four bytes of it; % and / because they are no calls.
    local word = bxor(crc, a + b * 0x100 + c * 0x10000 + d * 0x1000000)
    a = word % 256
    word = (word - a) / 256
    b = word % 256
    word = (word - b) / 256
    c = word % 256
    d = (word - c) / 256 % 256
    crc = bxor(T1[a], T2[b], T3[c], T4[d], T5[e], T6[g], T7[h], T8[i], T9[j], T10[k], T11[l],
               T12[m], T13[n], T14[o], T15[p], CRC_TABLE[q])
  end
  for at = whole + 1, #bytes do
    crc = bxor(bit.rshift(crc, 8), CRC_TABLE[bit.band(bxor(crc, byte(bytes, at)), 0xff)])
  end
  return bit.tobit(bit.bnot(crc))
end

local ipv6_source, ipv6_destination = Field.new("ipv6.src"), Field.new("ipv6.dst")
-- Over IPv6 the header's CRC is XORed with that of the addresses, the innermost ones of a tunnel.
local function address_crc(pinfo)
  if not tostring(pinfo.net_src):find(":", 1, true) then return 0 end
  local sources, destinations = { ipv6_source() }, { ipv6_destination() }
  if #sources == 0 or #destinations == 0 then return 0 end
  return crc32c(sources[#sources].range:raw() .. destinations[#destinations].range:raw())
end

local function header_crc_fits(buffer, pinfo)
  local bytes = buffer:raw(0, 48) .. buffer:raw(52, 12)
  return bxor(crc32c(bytes), address_crc(pinfo)) == bit.tobit(buffer(48, 4):uint())
end

-- The 30 bytes by type, from byte 16; each returns what stands in the info column.
local function data_fields(buffer, tree)
  tree:add(f.op_seq, buffer(16, 8))
  tree:add(f.total_count, buffer(24, 6), buffer(24, 8):uint64():rshift(16))
  tree:add(f.hop, buffer(30, 2))
  tree:add(f.chunk, buffer(32, 4))
  tree:add(f.tag, buffer(36, 4))
  tree:add(f.collective, buffer(40, 1))
  tree:add(f.datatype, buffer(40, 1))
  tree:add(f.redop, buffer(41, 1))
  tree:add(f.root, buffer(42, 2))
  return string.format("op %s chunk %u hop %u, %u bytes of %s %s",
                       tostring(buffer(16, 8):uint64()), buffer(32, 4):uint(),
                       buffer(30, 2):uint(), buffer:reported_len() - HEADER_BYTES,
                       REDOPS[buffer(41, 1):uint()] or "?",
                       DATATYPES[bit.band(buffer(40, 1):uint(), 0x0f)] or "?")
end

local function contribution_fields(buffer, tree)
  tree:add(f.op_seq, buffer(16, 8))
  tree:add(f.total_count, buffer(24, 6), buffer(24, 8):uint64():rshift(16))
  tree:add(f.received_below, buffer(30, 2))
  tree:add(f.chunk, buffer(32, 4))
  tree:add(f.tag, buffer(36, 4))
  tree:add(f.collective, buffer(40, 1))
  tree:add(f.datatype, buffer(40, 1))
  tree:add(f.redop, buffer(41, 1))
  tree:add(f.root, buffer(42, 2))
  tree:add(f.step, buffer(44, 1))
  tree:add(f.since, buffer(45, 1))
  local step = buffer(44, 1):uint()
  return string.format("op %s chunk %u%s, %u bytes of %s %s", tostring(buffer(16, 8):uint64()),
                       buffer(32, 4):uint(), step > 0 and " of step " .. (step - 1) or "", buffer:reported_len() - HEADER_BYTES,
                       REDOPS[buffer(41, 1):uint()] or "?",
                       DATATYPES[bit.band(buffer(40, 1):uint(), 0x0f)] or "?")
end

local function receipt_fields(buffer, tree)
  tree:add(f.entered, buffer(16, 8))
  tree:add(f.received, buffer(24, 8))
  tree:add(f.chunks, buffer(32, 8))
  tree:add(f.delay_us, buffer(40, 2))
  tree:add(f.echo, buffer(42, 4))
  return string.format("entered %s, received %s", tostring(buffer(16, 8):uint64()),
                       tostring(buffer(24, 8):uint64()))
end

-- A transfer's number: the lower 48 bits.
local function sequence_of(buffer)
  return buffer(16, 8):uint64():band(UInt64(0xffffffff, 0xffff))
end

local function pair_of(buffer, tree)
  tree:add(f.source, buffer(40, 2))
  tree:add(f.destination, buffer(42, 2))
  local stream = buffer(16, 2):uint()
  tree:add(f.stream, buffer(16, 2))
  return string.format("process %u to %u%s, transfer %s", buffer(40, 2):uint(),
                       buffer(42, 2):uint(), stream == 0 and "" or ", stream " .. stream,
                       tostring(sequence_of(buffer)))
end

local function offer_fields(buffer, tree)
  tree:add(f.sequence, buffer(18, 6), sequence_of(buffer))
  tree:add(f.bytes, buffer(24, 8))
  tree:add(f.chunk, buffer(32, 4))
  tree:add(f.tag, buffer(36, 4))
  tree:add(f.call, buffer(44, 1))
  tree:add(f.asks, buffer(45, 1))
  tree:add(f.done, buffer(45, 1))
  return string.format("%s of %s bytes, chunk %u", pair_of(buffer, tree),
                       tostring(buffer(24, 8):uint64()), buffer(32, 4):uint())
end

local function pull_fields(buffer, tree)
  tree:add(f.sequence, buffer(18, 6), sequence_of(buffer))
  tree:add(f.wanted, buffer(24, 8))
  tree:add(f.first_chunk, buffer(32, 4))
  tree:add(f.offer_echo, buffer(36, 4))
  tree:add(f.asks, buffer(44, 1))
  tree:add(f.complete, buffer(44, 1))
  return string.format("%s, from chunk %u", pair_of(buffer, tree), buffer(32, 4):uint())
end

-- What a tile piece and a tile call have both.
local function tile_fields(buffer, tree)
  tree:add(f.op_seq, buffer(16, 8))
  tree:add(f.total_count, buffer(24, 6), buffer(24, 8):uint64():rshift(16))
  tree:add(f.tag, buffer(36, 4))
  tree:add(f.collective, buffer(40, 1))
  tree:add(f.datatype, buffer(40, 1))
  tree:add(f.redop, buffer(41, 1))
  tree:add(f.root, buffer(42, 2))
  tree:add(f.format, buffer(44, 1))
  tree:add(f.tile_asks, buffer(44, 1))
  tree:add(f.result, buffer(44, 1))
  tree:add(f.not_entered, buffer(44, 1))
  tree:add(f.since, buffer(45, 1))
  return string.format("%s of %s as %s", REDOPS[buffer(41, 1):uint()] or "?",
                       DATATYPES[buffer(40, 1):bitfield(4, 4)] or "?",
                       FORMATS[buffer(44, 1):bitfield(0, 4)] or "?"),
         "op " .. tostring(buffer(16, 8):uint64()), buffer(44, 1):bitfield(4, 4)
end

local function tile_piece_fields(buffer, tree)
  tree:add(f.chunk, buffer(32, 4))
  local call, op, bits = tile_fields(buffer, tree)
  return string.format("%s %s of chunk %u, %u bytes of %s", op,
                       bit.band(bits, 2) ~= 0 and "result" or "part", buffer(32, 4):uint(),
                       buffer:reported_len() - HEADER_BYTES, call)
end

local function tile_call_fields(buffer, tree)
  tree:add(f.tile_echo, buffer(32, 4))
  local call, op, bits = tile_fields(buffer, tree)
  if bit.band(bits, 4) ~= 0 then return op .. " has not entered" end
  return op .. ": " .. call .. (bit.band(bits, 1) ~= 0 and ", asks" or "")
end

local function tile_pull_fields(buffer, tree)
  tree:add(f.op_seq, buffer(16, 8))
  tree:add(f.first_tile_chunk, buffer(24, 4))
  tree:add(f.grant, buffer(28, 4))
  tree:add(f.tiles_done, buffer(32, 4))
  tree:add(f.tile_echo, buffer(36, 4))
  tree:add(f.over, buffer(40, 2))
  tree:add(f.tile_asks, buffer(42, 1))
  tree:add(f.results, buffer(42, 1))
  tree:add(f.repair, buffer(42, 1))
  tree:add(f.all, buffer(42, 1))
  local bits = buffer(42, 1):uint()
  local info = string.format("op %s %s, chunks %u to %u, done %u", tostring(buffer(16, 8):uint64()),
                             bit.band(bits, 2) ~= 0 and "results" or "parts",
                             buffer(24, 4):uint(), buffer(28, 4):uint(), buffer(32, 4):uint())
  if bit.band(bits, 8) ~= 0 then info = info .. ", all has come" end
  if bit.band(bits, 4) ~= 0 then
    info = info .. ", some again"
    for at = HEADER_BYTES, HEADER_BYTES + 24, 8 do
      if at + 8 > buffer:len() then
        tree:add_proto_expert_info(short)
        break
      end
      tree:add(f.again_wanted, buffer(at, 8))
    end
  end
  return info
end

local function ack_fields(buffer, tree)
  tree:add(f.credit, buffer(16, 8))
  tree:add(f.posted, buffer(24, 8))
  tree:add(f.delay, buffer(32, 4))
  tree:add(f.ecn_ce, buffer(36, 4))
  tree:add(f.ranges, buffer(40, 1))
  tree:add(f.posted_onwards, buffer(42, 2))
  tree:add(f.posted_by_all, buffer(44, 2))
  local p = HEADER_BYTES
  tree:add(f.called, buffer(p, 8))
  tree:add(f.calls, buffer(p + 8, 8))
  tree:add(f.called_count, buffer(p + 16, 6), buffer(p + 16, 8):uint64():rshift(16))
  tree:add(f.called_root, buffer(p + 22, 2))
  tree:add(f.called_tag, buffer(p + 24, 4))
  tree:add(f.called_kinds, buffer(p + 28, 1))
  tree:add(f.called_redop, buffer(p + 29, 1))
  tree:add(f.called_format, buffer(p + 30, 1))
  local ranges = buffer(40, 1):uint()
  local info = "nothing"
  for i = 0, ranges - 1 do
    local at = HEADER_BYTES + 32 + 16 * i
    if at + 16 > buffer:len() then
      tree:add_proto_expert_info(short)
      break
    end
    local range = tree:add(gradwire, buffer(at, 16), "Range " .. i)
    range:add(f.first, buffer(at, 8))
    range:add(f.last, buffer(at + 8, 8))
    if i == 0 then
      info = tostring(buffer(at, 8):uint64()) .. "-" .. tostring(buffer(at + 8, 8):uint64())
    end
  end
  if ranges > 1 then info = info .. " and " .. (ranges - 1) .. " more" end
  return string.format("%s, credit %s, posted %s", info, tostring(buffer(16, 8):uint64()),
                       tostring(buffer(24, 8):uint64()))
end

local function hello_fields(buffer, tree)
  local p = HEADER_BYTES
  tree:add(f.group, buffer(p, 8))
  tree:add(f.epoch, buffer(p + 8, 4))
  tree:add(f.features, buffer(p + 12, 4))
  tree:add(f.incarnation, buffer(p + 16, 8))
  tree:add(f.digest, buffer(p + 24, 8))
  tree:add(f.payload_bytes, buffer(p + 32, 4))
  tree:add(f.from_rank, buffer(p + 40, 2))
  tree:add(f.to_rank, buffer(p + 42, 2))
  tree:add(f.nranks, buffer(p + 44, 2))
  tree:add(f.lanes, buffer(p + 46, 2))
  tree:add(f.credit, buffer(p + 48, 8))
  tree:add(f.posted, buffer(p + 56, 8))
  tree:add(f.source, buffer(p + 64, 1))
  tree:add(f.heard_source, buffer(p + 65, 1))
  tree:add(f.members, buffer(p + 66, 2))
  tree:add(f.folding_ranks, buffer(p + 68, 2))
  return string.format("rank %u to rank %u of %u, group %s epoch %u", buffer(p + 40, 2):uint(),
                       buffer(p + 42, 2):uint(), buffer(p + 44, 2):uint(),
                       buffer(p, 8):uint64():tohex(16), buffer(p + 8, 4):uint())
end

local function abort_fields(buffer, tree)
  local p = HEADER_BYTES
  tree:add(f.code, buffer(p, 1))
  tree:add(f.culprit, buffer(p + 2, 2))
  tree:add(f.reporter, buffer(p + 4, 2))
  tree:add(f.op_seq, buffer(p + 8, 8))
  tree:add(f.duration, buffer(p + 16, 8))
  tree:add(f.detail, buffer(p + 24, 160))
  return string.format("%s, culprit rank %u: %s", ABORTS[buffer(p, 1):uint()] or "?",
                       buffer(p + 2, 2):uint(), buffer(p + 24, 160):stringz())
end

local function bye_fields(buffer, tree)
  tree:add(f.completed, buffer(HEADER_BYTES, 8))
  tree:add(f.calls, buffer(HEADER_BYTES + 8, 8))
  tree:add(f.posted_by_all, buffer(HEADER_BYTES + 16, 8))
  return "up to op " .. tostring(buffer(HEADER_BYTES, 8):uint64())
end

local function ping_fields(buffer, tree)
  tree:add(f.asked, buffer(16, 8))
  local asked = buffer(16, 8):uint64()
  return asked == UInt64(0) and "" or "asks for the call of op " .. tostring(asked)
end

local function check_fields(buffer, tree)
  local p = HEADER_BYTES
  tree:add(f.op_seq, buffer(p, 8))
  tree:add(f.stalled, buffer(p + 8, 8))
  tree:add(f.origin, buffer(p + 16, 2))
  return string.format("rank %u asks for op %s", buffer(p + 16, 2):uint(),
                       tostring(buffer(p, 8):uint64()))
end

-- By type: bytes of payload that its fields take at least, and what shows them.
local BODIES = {
  [1] = { 72, hello_fields }, [2] = { 72, hello_fields }, [3] = { 0, data_fields },
  [4] = { 0, ping_fields }, [5] = { 32, ack_fields }, [6] = { 184, abort_fields },
  [7] = { 24, bye_fields }, [8] = { 24, bye_fields }, [9] = { 24, check_fields },
  [10] = { 0, contribution_fields }, [11] = { 0, receipt_fields }, [12] = { 0, receipt_fields },
  [13] = { 0, offer_fields }, [14] = { 0, offer_fields }, [15] = { 0, pull_fields },
  [16] = { 0, tile_piece_fields }, [17] = { 0, tile_call_fields }, [18] = { 0, tile_pull_fields },
}

function gradwire.dissector(buffer, pinfo, root)
  if buffer:len() < HEADER_BYTES then return 0 end
  pinfo.cols.protocol = "gradwire"
  local tree = root:add(gradwire, buffer())
  local type = buffer(1, 1):uint()
  local name = TYPES[type] or ("type " .. type)
  tree:add(f.version, buffer(0, 1))
  tree:add(f.type, buffer(1, 1))
  local flags = tree:add(f.flags, buffer(2, 1))
  flags:add(f.again, buffer(2, 1))
  flags:add(f.authenticated, buffer(2, 1))
  flags:add(f.encrypted, buffer(2, 1))
  -- The header of a sealed packet is in clear, and all that follows it may not be.
  local encrypted = buffer(2, 1):bitfield(5, 1) == 1
  local sealed = encrypted or buffer(2, 1):bitfield(6, 1) == 1
  local whole = buffer:reported_len() == buffer:len()
  local tail = sealed and whole and buffer:len() >= HEADER_BYTES + TAG_BYTES and TAG_BYTES or 0
  local payload_bytes = buffer:len() - HEADER_BYTES - tail
  tree:add(f.lane, buffer(3, 1))
  tree:add(f.group_tag, buffer(4, 4))
  tree:add(f.number, buffer(8, 8))
  tree:add(f.from_rank, buffer(46, 2))
  local body = BODIES[type]
  local info = ""
  if encrypted and body and body[1] > 0 then
    info = ": encrypted"
  elseif body and payload_bytes < body[1] then
    tree:add_proto_expert_info(short)
  elseif body and body[2] then
    info = ": " .. body[2](buffer, tree)
  end
  local crc = tree:add(f.header_crc, buffer(48, 4))
  if not header_crc_fits(buffer, pinfo) then
    crc:add_proto_expert_info(bad_header_crc)
    info = info .. " [header CRC wrong]"
  end
  crc = tree:add(f.payload_crc, buffer(52, 4))
  tree:add(f.token, buffer(56, 8))
  if payload_bytes > 0 then
    tree:add(f.payload, buffer(HEADER_BYTES, payload_bytes))
  end
  if tail > 0 then
    tree:add(f.seal_tag, buffer(HEADER_BYTES + payload_bytes, TAG_BYTES))
    name = "sealed " .. name
  end
  -- What was captured in part cannot be checked, nor can what is encrypted with its CRC.
  if whole and not encrypted then
    local payload = payload_bytes > 0 and buffer:raw(HEADER_BYTES, payload_bytes) or ""
    if crc32c(payload) ~= bit.tobit(buffer(52, 4):uint()) and payload ~= "" then
      crc:add_proto_expert_info(bad_payload_crc)
      info = info .. " [payload CRC wrong]"
    end
  end
  pinfo.cols.info = string.format("%s from rank %u lane %u #%s%s", name, buffer(46, 2):uint(),
                                  buffer(3, 1):uint(), tostring(buffer(8, 8):uint64()), info)
  return buffer:len()
end

local function looks_like_ours(buffer, pinfo, root)
  if buffer:len() < HEADER_BYTES or buffer(0, 1):uint() ~= 2 then return false end
  if TYPES[buffer(1, 1):uint()] == nil or not header_crc_fits(buffer, pinfo) then return false end
  gradwire.dissector(buffer, pinfo, root)
  return true
end
gradwire:register_heuristic("udp", looks_like_ours)
DissectorTable.get("udp.port"):add_for_decode_as(gradwire)
