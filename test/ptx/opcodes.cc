// SPDX-License-Identifier: BSD-3-Clause
// What each opcode does: PTX ISA 9.0, the sections named beside the groups. The GPU's NaN is
// nvcc's: any NaN that arithmetic makes in fp32 has the bits 0x7fffffff, and of fp64 the payload is
// not told, so here it is one that nobody expects.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "values.h"

namespace gradwire::ptx {
namespace {

// --- arithmetic and logic (9.7.1, 9.7.3, 9.7.8)

template <class T, T (*kFunction)(T)>
void unary(Thread& t, const Instruction& i) {
  set<T>(t, i, 0, kFunction(get<T>(t, i, 1)));
}
template <class T, T (*kFunction)(T, T)>
void binary(Thread& t, const Instruction& i) {
  set<T>(t, i, 0, kFunction(get<T>(t, i, 1), get<T>(t, i, 2)));
}
template <class T>
T add(T a, T b) {
  return seal(static_cast<T>(a + b));
}
template <class T>
T sub(T a, T b) {
  return seal(static_cast<T>(a - b));
}
template <class T>
T mul(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return seal(a * b);
  } else {
    return static_cast<T>(U64{a} * b);
  }
}
/// To nearest even, as `.rn` has it.
template <class T>
T reciprocal(T a) {
  return seal(T{1} / a);
}
template <class T>
T magnitude(T a) {
  return seal(std::fabs(a));
}
/// Whole numbers by zero: all ones, as the hardware has it.
template <class T>
T divide(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return seal(a / b);
  } else {
    if (b == 0) return static_cast<T>(~U64{0});
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(U64{0} - to_bits(a));
    return static_cast<T>(a / b);
  }
}
template <class T>
T least(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T most(T a, T b) {
  return a < b ? b : a;
}
template <class T>
T both(T a, T b) {
  return a & b;
}
template <class T>
T either(T a, T b) {
  return a | b;
}
template <class T>
T differ(T a, T b) {
  return a ^ b;
}
template <class T>
T invert(T a) {
  return static_cast<T>(~a);
}
U8 invert_predicate(U8 a) { return a == 0 ? 1 : 0; }
template <class T>
T negate(T a) {
  return static_cast<T>(0 - a);
}
U32 count_ones(U32 a) { return static_cast<U32>(std::popcount(a)); }

template <class T>
void shift_left(Thread& t, const Instruction& i) {
  const U32 by = get<U32>(t, i, 2);
  set<T>(t, i, 0, by >= sizeof(T) * 8 ? T{0} : static_cast<T>(get<T>(t, i, 1) << by));
}
template <class T>
void shift_right(Thread& t, const Instruction& i) {
  const U32 most_bits = sizeof(T) * 8 - 1;
  const U32 by = get<U32>(t, i, 2);
  const T value = get<T>(t, i, 1);
  const bool all = by > most_bits;
  set<T>(t, i, 0,
         all && std::is_unsigned_v<T> ? T{0} : static_cast<T>(value >> std::min(by, most_bits)));
}
template <class Wide, class T>
void multiply_wide(Thread& t, const Instruction& i) {
  set<Wide>(t, i, 0, static_cast<Wide>(static_cast<Wide>(get<T>(t, i, 1)) * get<T>(t, i, 2)));
}
template <class T>
void multiply_add(Thread& t, const Instruction& i) {
  set<T>(t, i, 0, static_cast<T>(get<T>(t, i, 1) * get<T>(t, i, 2) + get<T>(t, i, 3)));
}
void permute_bytes(Thread& t, const Instruction& i) {
  const U64 bytes = U64{get<U32>(t, i, 2)} << 32 | get<U32>(t, i, 1);
  const U32 selector = get<U32>(t, i, 3);
  U32 result = 0;
  for (int k = 0; k < 4; ++k) {
    const U32 chosen = selector >> (4 * k) & 15;
    U32 byte = static_cast<U32>(bytes >> (8 * (chosen & 7))) & 255;
    if ((chosen & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
    result |= byte << (8 * k);
  }
  set<U32>(t, i, 0, result);
}
/// Bits of the first into the second.
template <class T>
void insert_bits(Thread& t, const Instruction& i) {
  const T from = get<T>(t, i, 1);
  T into = get<T>(t, i, 2);
  const U32 position = get<U32>(t, i, 3) & 255;
  const U32 length = get<U32>(t, i, 4) & 255;
  for (U32 bit = 0; bit < length && position + bit < sizeof(T) * 8; ++bit) {
    const T mask = T{1} << (position + bit);
    into = (into & ~mask) | (((from >> bit) & 1) != 0 ? mask : T{0});
  }
  set<T>(t, i, 0, into);
}
template <class T>
void extract_bits(Thread& t, const Instruction& i) {
  const auto value = static_cast<std::make_unsigned_t<T>>(get<T>(t, i, 1));
  const U32 position = get<U32>(t, i, 2) & 255;
  const U32 length = get<U32>(t, i, 3) & 255;
  const U32 last = sizeof(T) * 8 - 1;
  const U32 top = std::min(position + length - 1, last);
  const bool sign = std::is_signed_v<T> && length != 0 && ((value >> top) & 1) != 0;
  std::make_unsigned_t<T> result = 0;
  for (U32 bit = 0; bit <= last; ++bit) {
    const bool from_value = bit < length && position + bit <= last;
    const bool one = from_value ? ((value >> (position + bit)) & 1) != 0 : sign;
    result |= static_cast<std::make_unsigned_t<T>>(one) << bit;
  }
  set<T>(t, i, 0, static_cast<T>(result));
}

// --- comparison and choice (9.7.6)

template <class T, bool (*kFunction)(T, T)>
void compare(Thread& t, const Instruction& i) {
  set<U8>(t, i, 0, kFunction(get<T>(t, i, 1), get<T>(t, i, 2)) ? 1 : 0);
}
template <class T>
bool is_less(T a, T b) {
  return a < b;
}
template <class T>
bool is_at_most(T a, T b) {
  return a <= b;
}
template <class T>
bool is_more(T a, T b) {
  return a > b;
}
template <class T>
bool is_at_least(T a, T b) {
  return a >= b;
}
template <class T>
bool is_equal(T a, T b) {
  return a == b;
}
template <class T>
bool is_other(T a, T b) {
  return a != b;
}
template <class T>
bool is_no_other(T a, T b) {
  return a == b || std::isnan(a) || std::isnan(b);
}
template <class T>
bool are_numbers(T a, T b) {
  return !std::isnan(a) && !std::isnan(b);
}
template <class T>
void select(Thread& t, const Instruction& i) {
  set<T>(t, i, 0, get<T>(t, i, get<U8>(t, i, 3) != 0 ? 1 : 2));
}

// --- moves and conversions (9.7.9)

template <class T>
void move(Thread& t, const Instruction& i) {
  set<T>(t, i, 0, get<T>(t, i, 1));
}
template <class T>
void pack(Thread& t, const Instruction& i) {
  const U32 bits = sizeof(T) * 8 / i.width;
  const U64 mask = (U64{1} << bits) - 1;
  U64 whole = 0;
  for (int k = 0; k < i.width; ++k) whole |= (get<U64>(t, i, k + 1) & mask) << (bits * k);
  set<T>(t, i, 0, static_cast<T>(whole));
}
template <class T>
void unpack(Thread& t, const Instruction& i) {
  const U32 bits = sizeof(T) * 8 / i.width;
  const U64 mask = (U64{1} << bits) - 1;
  const U64 whole = get<T>(t, i, i.width);
  for (int k = 0; k < i.width; ++k) set<U64>(t, i, k, whole >> (bits * k) & mask);
}
template <class To, class From>
void convert(Thread& t, const Instruction& i) {
  set<To>(t, i, 0, static_cast<To>(get<From>(t, i, 1)));
}
void half_to_float(Thread& t, const Instruction& i) {
  const U32 bits = get<U16>(t, i, 1);
  const U32 exponent = bits >> 10 & 31;
  const U32 mantissa = bits & 1023;
  float size = std::ldexp(static_cast<float>(exponent == 0 ? mantissa : mantissa | 1024),
                          exponent == 0 ? -24 : static_cast<int>(exponent) - 25);
  if (exponent == 31) {
    size = mantissa == 0 ? std::numeric_limits<float>::infinity()
                         : std::numeric_limits<float>::quiet_NaN();
  }
  set<F32>(t, i, 0, seal((bits & 0x8000) != 0 ? -size : size));
}
void float_to_half(Thread& t, const Instruction& i) {
  const float value = get<F32>(t, i, 1);
  const U32 sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::fabs(value);
  U32 bits = 0x7fff;
  if (size >= 65520.0f) {  // nearer to 2^16 than to the largest half
    bits = sign | 0x7c00;
  } else if (size < 0x1p-14f) {
    bits = sign | static_cast<U32>(std::nearbyint(std::ldexp(size, 24)));
  } else if (!std::isnan(value)) {
    const U32 whole = std::bit_cast<U32>(size);
    bits = sign | (((whole + 0xfff + (whole >> 13 & 1)) >> 13) - (112u << 10));
  }
  set<U16>(t, i, 0, static_cast<U16>(bits));
}
void read_clock(Thread& t, const Instruction& i) { set<U64>(t, i, 0, t.block->machine->now_ns()); }

template <class T, class Unsigned>
void add_integers(Table& table, const std::string& type) {
  const std::string width = type.substr(1);
  // Sums and products are the same bits with and without sign.
  table["add." + type] = {binary<Unsigned, add<Unsigned>>};
  table["sub." + type] = {binary<Unsigned, sub<Unsigned>>};
  table["mul.lo." + type] = {binary<Unsigned, mul<Unsigned>>};
  table["mad.lo." + type] = {multiply_add<Unsigned>};
  table["div." + type] = {binary<T, divide<T>>};
  table["min." + type] = {binary<T, least<T>>};
  table["max." + type] = {binary<T, most<T>>};
  table["neg." + type] = {unary<Unsigned, negate<Unsigned>>};
  table["shr." + type] = {shift_right<T>};
  table["setp.lt." + type] = {compare<T, is_less<T>>};
  table["setp.le." + type] = {compare<T, is_at_most<T>>};
  table["setp.gt." + type] = {compare<T, is_more<T>>};
  table["setp.ge." + type] = {compare<T, is_at_least<T>>};
  table["setp.eq." + type] = {compare<T, is_equal<T>>};
  table["setp.ne." + type] = {compare<T, is_other<T>>};
}

template <class T>
void add_bits(Table& table, const std::string& width) {
  const std::string type = "b" + width;
  table["and." + type] = {binary<T, both<T>>};
  table["or." + type] = {binary<T, either<T>>};
  table["xor." + type] = {binary<T, differ<T>>};
  table["not." + type] = {unary<T, invert<T>>};
  table["shl." + type] = {shift_left<T>};
  table["setp.eq." + type] = {compare<T, is_equal<T>>};
  table["setp.ne." + type] = {compare<T, is_other<T>>};
  table["mov." + type + ".pack"] = {pack<T>};
  table["mov." + type + ".unpack"] = {unpack<T>};
  table["bfi." + type] = {insert_bits<T>};
}

template <class T>
void add_floats(Table& table, const std::string& type) {
  table["add.rn." + type] = {binary<T, add<T>>};
  table["sub.rn." + type] = {binary<T, sub<T>>};
  table["mul.rn." + type] = {binary<T, mul<T>>};
  table["abs." + type] = {unary<T, magnitude<T>>};
  table["rcp.rn." + type] = {unary<T, reciprocal<T>>};
  table["div.rn." + type] = {binary<T, divide<T>>};
  table["setp.lt." + type] = {compare<T, is_less<T>>};
  table["setp.gt." + type] = {compare<T, is_more<T>>};
  table["setp.le." + type] = {compare<T, is_at_most<T>>};
  table["setp.ge." + type] = {compare<T, is_at_least<T>>};
  table["setp.eq." + type] = {compare<T, is_equal<T>>};
  table["setp.equ." + type] = {compare<T, is_no_other<T>>};
  table["setp.neu." + type] = {compare<T, is_other<T>>};
  table["setp.num." + type] = {compare<T, are_numbers<T>>};
  table["cvt.rn." + type + ".s16"] = {convert<T, S16>};
  table["cvt.rn." + type + ".u16"] = {convert<T, U16>};
  table["cvt.rn." + type + ".u32"] = {convert<T, U32>};
}

template <class T>
void add_moves(Table& table, const std::string& type) {
  table["mov." + type] = {move<T>};
  table["selp." + type] = {select<T>};
}

template <class To>
void add_conversions(Table& table, const std::string& to) {
  const std::string name = "cvt." + to;
  table[name + ".u8"] = {convert<To, U8>};
  table[name + ".s8"] = {convert<To, S8>};
  table[name + ".u16"] = {convert<To, U16>};
  table[name + ".s16"] = {convert<To, S16>};
  table[name + ".u32"] = {convert<To, U32>};
  table[name + ".s32"] = {convert<To, S32>};
  table[name + ".u64"] = {convert<To, U64>};
  table[name + ".s64"] = {convert<To, S64>};
}

Table make_table() {
  Table table;
  add_integers<U16, U16>(table, "u16");
  add_integers<S16, U16>(table, "s16");
  add_integers<U32, U32>(table, "u32");
  add_integers<S32, U32>(table, "s32");
  add_integers<U64, U64>(table, "u64");
  add_integers<S64, U64>(table, "s64");
  add_bits<U16>(table, "16");
  add_bits<U32>(table, "32");
  add_bits<U64>(table, "64");
  add_floats<F32>(table, "f32");
  add_floats<F64>(table, "f64");
  for (const char* type : {"b8", "u8"}) add_moves<U8>(table, type);
  for (const char* type : {"b16", "u16"}) add_moves<U16>(table, type);
  for (const char* type : {"b32", "u32"}) add_moves<U32>(table, type);
  for (const char* type : {"b64", "u64"}) add_moves<U64>(table, type);
  add_moves<S8>(table, "s8");
  add_moves<S16>(table, "s16");
  add_moves<S32>(table, "s32");
  add_moves<S64>(table, "s64");
  add_moves<F32>(table, "f32");
  add_moves<F64>(table, "f64");
  add_conversions<U8>(table, "u8");
  add_conversions<S8>(table, "s8");
  add_conversions<U16>(table, "u16");
  add_conversions<S16>(table, "s16");
  add_conversions<U32>(table, "u32");
  add_conversions<S32>(table, "s32");
  add_conversions<U64>(table, "u64");
  add_conversions<S64>(table, "s64");
  const Table others = {
      {"mov.pred", {move<U8>}},
      {"and.pred", {binary<U8, both<U8>>}},
      {"or.pred", {binary<U8, either<U8>>}},
      {"xor.pred", {binary<U8, differ<U8>>}},
      {"not.pred", {unary<U8, invert_predicate>}},
      {"mul.wide.u16", {multiply_wide<U32, U16>}},
      {"mul.wide.u32", {multiply_wide<U64, U32>}},
      {"mul.wide.s32", {multiply_wide<S64, S32>}},
      {"popc.b32", {unary<U32, count_ones>}},
      {"prmt.b32", {permute_bytes}},
      {"bfe.u32", {extract_bits<U32>}},
      {"bfe.s32", {extract_bits<S32>}},
      {"bfe.s64", {extract_bits<S64>}},
      {"cvt.f32.f16", {half_to_float}},
      {"cvt.rn.f32.f64", {convert<F32, F64>}},
      {"cvt.rn.f16.f32", {float_to_half}},
      // Addresses are the host's in every space but the shared one.
      {"cvta.to.global.u64", {move<U64>}},
      {"cvta.param.u64", {move<U64>}},
      {"mov.u64.clock", {read_clock}},
  };
  table.insert(others.begin(), others.end());
  add_memory_opcodes(table);
  return table;
}

}  // namespace

const Opcode* find_opcode(const std::string& name) {
  static const Table table = make_table();
  const auto found = table.find(name);
  return found == table.end() ? nullptr : &found->second;
}

}  // namespace gradwire::ptx
