// SPDX-License-Identifier: BSD-3-Clause
#include "stand.h"

namespace gradwire::ptx {

using namespace gradwire::test;

std::string check(const Case& c, PtxBackend& backend, std::mt19937_64& random) {
  const World before(c, random);
  World expected = before;
  expect(c, expected);
  InMachine reach(backend);
  std::string wrong = run(c, backend, before, expected, reach);
  if (!wrong.empty() && !backend.fault().empty()) wrong += " (" + backend.fault() + ")";
  return wrong;
}

std::string check(const OrderCase& c, PtxBackend& backend, std::mt19937_64& random) {
  InMachine reach(backend);
  std::string wrong = run(c, backend, random, reach);
  if (!wrong.empty() && !backend.fault().empty()) wrong += " (" + backend.fault() + ")";
  return wrong;
}

std::string check_batch(const std::vector<Case>& cases, PtxBackend& backend,
                        std::mt19937_64& random, const std::vector<OrderCase>& folds) {
  InMachine reach(backend);
  std::string wrong = check_batch(cases, backend, reach, random, folds);
  if (!wrong.empty() && !backend.fault().empty()) wrong += " (" + backend.fault() + ")";
  return wrong;
}

}  // namespace gradwire::ptx
