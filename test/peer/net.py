# SPDX-License-Identifier: BSD-3-Clause
"""Frames on one device: Ethernet, ARP, IPv4 and UDP, for any number of addresses that live here.
What goes from one of them to another does not leave the process. One thread, no clock of its own
but time.monotonic_ns()."""

import collections
import ipaddress
import select
import socket
import struct
import time

from .checksums import internet_checksum

IPV4, ARP, UDP = 0x0800, 0x0806, 17
ETHERNET_BYTES, IP_BYTES, UDP_BYTES = 14, 20, 8
PAYLOAD_AT = ETHERNET_BYTES + IP_BYTES + UDP_BYTES
BROADCAST = b"\xff" * 6


class Failure(SystemExit):
    """The story ends: something is not as the page says. The argument says what."""


def require(condition, what):
    if not condition:
        raise Failure(f"FAILED: {what}")


def ip_bytes(address):
    return ipaddress.ip_address(address).packed


def mac_of(address):
    """Of an address that lives here: a local one that has the address in it."""
    return b"\x02\x99" + ip_bytes(address)


def udp_frame(to_mac, source, destination, source_port, port, payload):
    """@param source, destination IPv4 addresses as text. @return a frame as the page has it."""
    ip = bytearray(struct.pack(">BBHHHBBH4s4s", 0x45, 0, IP_BYTES + UDP_BYTES + len(payload), 0,
                               0x4000, 64, UDP, 0, ip_bytes(source), ip_bytes(destination)))
    struct.pack_into(">H", ip, 10, internet_checksum(ip))
    udp = struct.pack(">HHHH", source_port, port, UDP_BYTES + len(payload), 0)
    return to_mac + mac_of(source) + struct.pack(">H", IPV4) + ip + udp + payload


class Network:
    """One packet socket, and the nodes behind it by address. A node has `address`, receive(source
    address, source port, port, payload) and tick(now_ns)."""

    def __init__(self, device):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.socket.bind((device, 0))
        self.socket.setblocking(False)
        self.nodes, self.macs = {}, {}
        self.inside = collections.deque()

    def add(self, node):
        self.nodes[node.address] = node
        self.macs[node.address] = mac_of(node.address)

    def remove(self, node):
        del self.nodes[node.address]

    def send(self, source, destination, source_port, port, payload):
        """A datagram; to an address whose MAC is not known yet it is lost, and asked for."""
        if destination not in self.macs:
            self._arp(1, source, destination, BROADCAST)
            return
        frame = udp_frame(self.macs[destination], source, destination, source_port, port, payload)
        if destination in self.nodes:
            self.inside.append(frame)
        else:
            self.send_frame(frame)

    def send_frame(self, frame):
        """Any bytes, right or wrong, at least as long as Ethernet has them."""
        while True:
            try:
                self.socket.send(bytes(frame).ljust(60, b"\0"))
                return
            except BlockingIOError:
                select.select([], [self.socket], [], 1)
            except OSError as error:
                if error.errno != 105:  # ENOBUFS: the device's queue is full
                    raise
                time.sleep(0.0002)

    def _arp(self, operation, source, destination, mac):
        """Asks (1) or answers (2)."""
        target = b"\0" * 6 if operation == 1 else mac
        self.send_frame(mac + mac_of(source) + struct.pack(
            ">HHHBBH6s4s6s4s", ARP, 1, IPV4, 6, 4, operation, mac_of(source), ip_bytes(source),
            target, ip_bytes(destination)))

    def poll(self, seconds=0.0):
        """Takes all that has come, waits at most so long for something, and lets nodes do what is
        due."""
        if not self.inside:
            select.select([self.socket], [], [], seconds)
        for _ in range(256):
            if self.inside:
                self._take(self.inside.popleft())
                continue
            try:
                data, where = self.socket.recvfrom(65536)
            except BlockingIOError:
                break
            if where[2] != socket.PACKET_OUTGOING:
                self._take(data)
        for node in list(self.nodes.values()):
            node.tick(time.monotonic_ns())

    def _take(self, frame):
        kind = int.from_bytes(frame[12:14], "big")
        if kind == ARP and len(frame) >= 42:
            operation, _, sender, _, target = struct.unpack_from(">H6s4s6s4s", frame, 20)
            sender_ip, target_ip = (str(ipaddress.ip_address(ip)) for ip in (sender, target))
            if target_ip in self.nodes and sender_ip not in self.nodes:
                self.macs[sender_ip] = frame[22:28]
                if operation == 1:
                    self._arp(2, target_ip, sender_ip, frame[22:28])
        elif kind == IPV4 and len(frame) >= PAYLOAD_AT:
            self._take_ip(frame)

    def _take_ip(self, frame):
        ip = frame[ETHERNET_BYTES:ETHERNET_BYTES + IP_BYTES]
        node = self.nodes.get(str(ipaddress.ip_address(ip[16:20])))
        if node is None or ip[9] != UDP:
            return
        total, = struct.unpack_from(">H", ip, 2)
        source_port, port, length, checksum = struct.unpack_from(">HHHH", frame, 34)
        require(ip[0] == 0x45 and ip[4:8] == b"\0\0\x40\0" and ip[8] == 64,
                f"an IPv4 header of version 4, 20 bytes, no identification, don't fragment, "
                f"64 hops, not {ip.hex()}")
        require(internet_checksum(ip) == 0 and checksum == 0, "right checksums of IPv4 and UDP")
        require(total == length + IP_BYTES and ETHERNET_BYTES + total <= len(frame),
                f"lengths of IPv4 and UDP that fit: {total}, {length} in {len(frame)} bytes")
        node.receive(str(ipaddress.ip_address(ip[12:16])), source_port, port,
                     frame[PAYLOAD_AT:ETHERNET_BYTES + total])

    def run_until(self, done, what, seconds=60):
        """Polls until done() is true, or the story fails: `what` did not happen."""
        deadline = time.monotonic() + seconds
        while not done():
            require(time.monotonic() < deadline, f"{what}: not within {seconds} s")
            self.poll(0.002)


class Inside(Network):
    """A network that no device leads out of, for nodes among themselves."""

    def __init__(self):
        self.nodes, self.macs = {}, {}
        self.inside = collections.deque()

    def send_frame(self, frame):
        require(False, "every address lives here")

    def poll(self, seconds=0.0):
        if not self.inside:
            time.sleep(min(seconds, 0.0005))
        self.drain()
        for node in list(self.nodes.values()):
            node.tick(time.monotonic_ns())

    def drain(self):
        """Takes what is on its way, and what is answered; no node does what is due by time."""
        while self.inside:
            self._take(self.inside.popleft())
