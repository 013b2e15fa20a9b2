// SPDX-License-Identifier: BSD-3-Clause
// Key files: made, named and checked. No daemon is asked.
#include <fmt/format.h>

#include <memory>

#include "security/key_file.h"
#include "security/key_schedule.h"
#include "verbs.h"

namespace gradwire::cli {
namespace {

using Run = int (*)(const std::string& path);

int make(const std::string& path) {
  if (const auto made = security::make_key_file(path); !made) return complain(made.error().message);
  const auto key = security::read_key_file(path);
  if (!key) return complain(key.error().message);
  fmt::print("{}: key {}\n", path, security::text_of(security::FileKeys(*key).id));
  return kOk;
}

int show(const std::string& path) {
  const auto key = security::read_key_file(path);
  if (!key) return complain(key.error().message);
  fmt::print("{}\n", security::text_of(security::FileKeys(*key).id));
  return kOk;
}

int check(const std::string& path) {
  const auto key = security::read_key_file(path);
  if (!key) return complain(key.error().message);
  fmt::print("{}: key {}, good\n", path, security::text_of(security::FileKeys(*key).id));
  return kOk;
}

}  // namespace

void add_key(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("key", "Make a key file, show its id, or check it");
  command->require_subcommand(1);
  struct Verb {
    const char* name;
    const char* help;
    Run run;
  };
  for (const Verb& verb : {
           Verb{"make", "Draw a key and write it to a new file that its owner alone may read",
                make},
           Verb{"show", "Print the id of the key in a file, which is no secret", show},
           Verb{"check", "Say whether a daemon would take the file, and why not", check},
       }) {
    CLI::App* sub = command->add_subcommand(verb.name, verb.help);
    auto path = std::make_shared<std::string>();
    sub->add_option("FILE", *path, "The key file")->required();
    sub->callback([path, run = verb.run, &action] { action = [path, run] { return run(*path); }; });
  }
}

}  // namespace gradwire::cli
