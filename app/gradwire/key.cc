// SPDX-License-Identifier: BSD-3-Clause
// Key files: made, named and checked, without a daemon; and a daemon that reads its own again.
#include <fmt/format.h>

#include <memory>

#include "security/key_file.h"
#include "security/key_schedule.h"
#include "table.h"
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

int load(const Target& target) {
  const auto answer = ask(target, ipc::MessageType::kLoadKeys);
  if (!answer) return complain(answer.error().message);
  if (target.json) {
    fmt::print("{}\n", answer->dump(2));
    return kOk;
  }
  const char* place = "key";
  for (const nlohmann::json& id : answer->value("keys", nlohmann::json::array())) {
    fmt::print("{} {}\n", place, text_of(id));
    place = "second key";
  }
  return kOk;
}

}  // namespace

void add_key(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "key", "Make a key file, show its id, check it, or have the daemon read its own");
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
  CLI::App* sub = command->add_subcommand(
      "load", "Make the daemon read its key files again, and print the ids of its keys");
  auto target = std::make_shared<Target>();
  add_target(*sub, *target);
  sub->callback([target, &action] { action = [target] { return load(*target); }; });
}

}  // namespace gradwire::cli
