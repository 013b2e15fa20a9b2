#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Keys and sealed packets as doc/security.md says them, from that page alone: the key schedule,
entries with MACs, and packets of both modes. Its vectors are what lib/security has to find.

security.py make    writes security_vectors.json and prints the page's table of vectors
security.py check   fails if the file or the page's table says something else"""

import hashlib
import hmac
import json
import pathlib
import struct
import sys

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
except ImportError as why:
    print(f"skipped: python3-cryptography is missing ({why})")
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE / "security_vectors.json"
PAGE = HERE.parent.parent / "doc/security.md"
OFF, AUTHENTICATE, ENCRYPT = 0, 1, 2
HEADER_BYTES, TAG_BYTES = 64, 16
FLAGS = {AUTHENTICATE: 0x02, ENCRYPT: 0x04}
GENERATION = 1 << 22


def extract(salt, secret):
    return hmac.new(salt, secret, hashlib.sha256).digest()


def expand(secret, label, context, n):
    return HKDFExpand(SHA256(), n, label.encode("ascii") + b"\0" + context).derive(secret)


class FileKeys:
    """What follows from a key file."""

    def __init__(self, key):
        assert len(key) == 32
        master = extract(b"gradwire key file v1", key)
        self.id = expand(master, "gw1 id", b"", 8)
        self.entry = expand(master, "gw1 entry", b"", 32)
        self.cluster = expand(master, "gw1 cluster", b"", 32)
        self.job = expand(master, "gw1 job", b"", 32)


NO_JOB = bytes(32)


def entry_mac(entry, key):
    bare = bytearray(entry)
    for at, n in ((36, 4), (328, 16), (352, 16)):
        bare[at:at + n] = bytes(n)
    return hmac.new(key.entry, bytes(bare), hashlib.sha256).digest()[:16]


def write_keys(entry, wanted, user, payload, public, keys, job_id=bytes(8)):
    """The entry with its fields of keys; its checksum is the caller's."""
    ids = [key.id for key in keys] + [bytes(8)]
    fields = struct.pack("<HBBI32s8s16x8s16x8sI132x", 1, wanted, len(keys), user, public, ids[0],
                         ids[1], job_id, payload)
    out = bytearray(entry[:280] + fields)
    assert len(out) == 512
    macs = [entry_mac(out, key) for key in keys]
    for at, mac in zip((328, 352), macs):
        out[at:at + 16] = mac
    return bytes(out)


def public_of(private):
    key = X25519PrivateKey.from_private_bytes(private)
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def pair_secret(cluster, private, incarnation, other_public, other_incarnation):
    own = X25519PrivateKey.from_private_bytes(private)
    shared = own.exchange(X25519PublicKey.from_public_bytes(other_public))
    ends = sorted([(public_of(private), incarnation), (other_public, other_incarnation)],
                  key=lambda end: end[0])
    both = b"".join(public + struct.pack(">Q", number) for public, number in ends)
    return expand(extract(cluster, shared), "gw1 pair", both, 32)


def link_context(group_id, epoch, lane, mode, ranks, incarnations):
    return struct.pack(">QIBBHHQQ", group_id, epoch, lane, mode, *ranks, *incarnations)


class LinkKeys:
    """One direction of a link."""

    def __init__(self, root, context, table_hash):
        opening = expand(root, "gw1 link", context, 36)
        self.token = struct.unpack(">Q", opening[:8])[0]
        self.hello = opening[8:24], opening[24:]
        self.chains = [expand(root, "gw1 data", context + table_hash, 32)]

    def data(self, number):
        """Key and iv of the generation of this number."""
        generation = number // GENERATION
        while len(self.chains) <= generation:
            self.chains.append(expand(self.chains[-1], "gw1 next", b"", 32))
        both = expand(self.chains[generation], "gw1 key", b"", 28)
        return both[:16], both[16:]


def nonce(iv, number):
    return bytes(a ^ b for a, b in zip(iv, bytes(4) + struct.pack(">Q", number)))


def parts(packet):
    """A, and P, of a packet without its tag."""
    return packet[:48] + packet[56:64], packet[64:] + packet[52:56]


def seal(mode, key, iv, packet):
    """The packet with its tag. Its number is in it; the header's CRC comes afterwards."""
    data, rest = parts(packet)
    gcm, once = AESGCM(key), nonce(iv, struct.unpack(">Q", packet[8:16])[0])
    if mode == AUTHENTICATE:
        return packet + gcm.encrypt(once, b"", data + rest)
    sealed = gcm.encrypt(once, rest, data)
    rest, tag = sealed[:-TAG_BYTES], sealed[-TAG_BYTES:]
    return packet[:52] + rest[-4:] + packet[56:64] + rest[:-4] + tag


def unseal(mode, key, iv, sealed):
    """The packet without its tag; None if the tag does not fit."""
    packet, tag = sealed[:-TAG_BYTES], sealed[-TAG_BYTES:]
    data, rest = parts(packet)
    gcm, once = AESGCM(key), nonce(iv, struct.unpack(">Q", packet[8:16])[0])
    try:
        if mode == AUTHENTICATE:
            gcm.decrypt(once, tag, data + rest)
            return packet
        rest = gcm.decrypt(once, rest + tag, data)
    except InvalidTag:
        return None
    return packet[:52] + rest[-4:] + packet[56:64] + rest[:-4]


def counted(n, first=0):
    return bytes((first + i) % 256 for i in range(n))


def make():
    """All vectors: strings are hexadecimal."""
    files = {"cluster": counted(32), "next": counted(32, 32), "job": counted(32, 64)}
    keys = {name: FileKeys(key) for name, key in files.items()}
    out = {"files": [{"file": files[name].hex(), "id": k.id.hex(), "entry": k.entry.hex(),
                      "cluster": k.cluster.hex(), "job": k.job.hex()}
                     for name, k in keys.items()]}
    privates = {rank: counted(32, 96 + 32 * rank) for rank in range(2)}
    incarnations = (0x1111111111111111, 0x2222222222222222)
    before = counted(280, 5) + bytes(232)
    out["entries"] = [
        {"before": before.hex(), "wanted": wanted, "user": user, "payload": payload,
         "public": public_of(privates[0]).hex(),
         "job_id": job.hex(), "keys": [files[name].hex() for name in names],
         "entry": write_keys(before, wanted, user, payload, public_of(privates[0]),
                             [keys[name] for name in names], job).hex()}
        for wanted, user, payload, names, job in (
            (ENCRYPT, 1000, 1344, ["cluster"], bytes(8)),
            (AUTHENTICATE, 0xFFFE, 8832, ["next", "cluster"], keys["job"].id))]
    out["links"], link_keys = [], []
    table = b"what the digest of the table is taken of"
    for mode, sender, holder, job in ((ENCRYPT, 0, 0, NO_JOB), (ENCRYPT, 0, 1, NO_JOB),
                                      (AUTHENTICATE, 1, 1, keys["job"].job)):
        ranks = (sender, 1 - sender)
        ends = incarnations[sender], incarnations[1 - sender]
        group_id, epoch, lane = 0x0123456789ABCDEF, 7, 1
        pair = pair_secret(keys["cluster"].cluster, privates[holder], incarnations[holder],
                           public_of(privates[1 - holder]), incarnations[1 - holder])
        root = extract(job, pair)
        context = link_context(group_id, epoch, lane, mode, ranks, ends)
        link = LinkKeys(root, context, hashlib.sha256(table).digest())
        link_keys.append((mode, link))
        out["links"].append({
            "mode": mode, "sends": sender == holder, "group_id": f"{group_id:016x}",
            "epoch": epoch, "lane": lane, "from_rank": ranks[0], "to_rank": ranks[1],
            "from_incarnation": f"{ends[0]:016x}", "to_incarnation": f"{ends[1]:016x}",
            "cluster": keys["cluster"].cluster.hex(), "private": privates[holder].hex(),
            "public": public_of(privates[holder]).hex(),
            "other_public": public_of(privates[1 - holder]).hex(), "pair": pair.hex(),
            "job": job.hex(), "root": root.hex(), "context": context.hex(),
            "table": table.hex(), "table_hash": hashlib.sha256(table).hexdigest(),
            "token": f"{link.token:016x}",
            "hello": dict(zip(("key", "iv"), (part.hex() for part in link.hello))),
            "generations": [dict(zip(("key", "iv"), (p.hex() for p in link.data(g * GENERATION))))
                            for g in range(4)]})
    assert out["links"][0]["pair"] == out["links"][1]["pair"]
    out["packets"] = []
    for mode, link in (link_keys[0], link_keys[2]):
        for kind, number, size in ((1, 1, 1344), (3, 5, 1344), (4, 6, 0), (3, GENERATION - 1, 61),
                                   (3, GENERATION, 320), (6, 3 * GENERATION + 9, 184)):
            key, iv = link.hello if kind in (1, 2, 6) else link.data(number)
            packet = (bytes((2, kind, FLAGS[mode], 1)) + bytes.fromhex("91daaf1d") +
                      struct.pack(">Q", number) + counted(30, number) + struct.pack(">H", 0) +
                      bytes(4) + counted(4, 77) + struct.pack(">Q", link.token) +
                      counted(size, 3 * number))
            sealed = seal(mode, key, iv, packet)
            assert unseal(mode, key, iv, sealed) == packet
            assert unseal(mode, key, iv, sealed[:-1] + bytes((sealed[-1] ^ 1,))) is None
            out["packets"].append({"mode": mode, "number": f"{number:016x}", "key": key.hex(),
                                   "iv": iv.hex(), "clear": packet.hex(), "sealed": sealed.hex()})
    return out


def page_rows(vectors):
    """The table at the end of the page."""
    cluster, link, ping = vectors["files"][0], vectors["links"][0], vectors["packets"][2]
    rows = [("id of the key", cluster["id"]), ("entry key", cluster["entry"]),
            ("cluster secret", cluster["cluster"]), ("job secret", cluster["job"]),
            ("X25519 private key of rank 0", link["private"]),
            ("its public key", link["public"]), ("public key of rank 1", link["other_public"]),
            ("pair", link["pair"]), ("root, without a job's key", link["root"]),
            ("context of the link", link["context"]), ("table hash", link["table_hash"]),
            ("token", link["token"]), ("hello key", link["hello"]["key"]),
            ("hello iv", link["hello"]["iv"]), ("key 0", link["generations"][0]["key"]),
            ("iv 0", link["generations"][0]["iv"]), ("key 1", link["generations"][1]["key"]),
            ("a ping in clear, without the header's CRC", ping["clear"]),
            ("the same sealed", ping["sealed"])]
    return [f"| {what} | `{value}` |" for what, value in rows]


def main(verb):
    vectors = make()
    text = json.dumps(vectors, indent=1) + "\n"
    if verb == "make":
        FILE.write_text(text, encoding="utf-8")
        print("\n".join(page_rows(vectors)))
        return True
    page = PAGE.read_text(encoding="utf-8")
    wrong = [row for row in page_rows(vectors) if row not in page]
    if FILE.read_text(encoding="utf-8") != text:
        wrong.append(f"{FILE.name} has other values")
    for line in wrong:
        print(f"not as the page and the vectors have it: {line}")
    print(f"{len(vectors['packets'])} packets, {len(page_rows(vectors))} rows, {len(wrong)} wrong")
    return not wrong


if __name__ == "__main__":
    if sys.argv[1:] not in (["make"], ["check"]):
        sys.exit(__doc__)
    sys.exit(0 if main(sys.argv[1]) else 1)
