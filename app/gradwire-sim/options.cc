// SPDX-License-Identifier: BSD-3-Clause
#include "options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>

#include "sim/seeds/scenario.h"
#include "transport/congestion.h"

namespace gradwire::sim {
namespace {

bool parse_number(std::string_view text, std::uint64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size();
}

std::string profile_help() {
  std::string text = "what goes wrong:";
  for (const Profile& profile : profiles()) {
    text += fmt::format("\n  {}: {}", profile.name, profile.about);
  }
  return text;
}

}  // namespace

Result<void> parse_seeds(const std::string& text, Options& options) {
  const std::size_t dots = text.find("..");
  const std::string_view all = text;
  const bool good =
      dots == std::string::npos
          ? parse_number(all, options.first_seed) && parse_number(all, options.last_seed)
          : parse_number(all.substr(0, dots), options.first_seed) &&
                parse_number(all.substr(dots + 2), options.last_seed);
  if (!good || options.first_seed > options.last_seed) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("seeds '{}': one number, or FIRST..LAST with both included", text));
  }
  return {};
}

Result<Options> parse_command_line(int argc, const char* const* argv) {
  Options options;
  std::string seeds = "1..100";
  CLI::App app{
      "Runs production shards on a simulated network in virtual time, a scenario for each seed, "
      "and checks every result. The same seed gives the same run. Exit status: 0 if nothing was "
      "wrong, 1 if a seed failed, 2 for a wrong command line."};
  app.add_option("--ranks", options.ranks, "ranks; 0: 2 to 16, by the seed");
  app.add_option("--seeds", seeds, "FIRST..LAST, both included, or one seed")
      ->capture_default_str();
  app.add_flag("--sealed", options.sealed,
               "of these only the seeds whose packets are sealed, about one of four");
  app.add_option("--profile", options.profile, profile_help())->capture_default_str();
  app.add_option(
      "--measure", options.measure,
      "instead of seeds: scale, loss, sharing, shapes or all-to-all, as tables; failure: a "
      "trial a seed");
  app.add_option("--packet-ns", options.packet_ns,
                 "of --measure shapes and all-to-all: what an endpoint takes for each packet sent "
                 "and for each received, in nanoseconds")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--two-step-kib", options.two_step_kib,
                 "of --measure shapes: transport.two_step_kib; 0: the default");
  app.add_flag("--tiles", options.tiles,
               "likewise: ops by tiles, as with transport.tiles = \"always\", and none that is "
               "direct, gathered or in two steps");
  app.add_option("--folding-ranks", options.folding,
                 "likewise, with --tiles: so many hosts beside the ranks have no members and only "
                 "sum; as many as ranks at most")
      ->check(CLI::Range(0, 256));
  app.add_option("--owners", options.owners,
                 "likewise: so many ranks have transport.two_step_owner; 0: none has, so all sum");
  app.add_option("--rx-descriptors", options.rx_descriptors,
                 "likewise: port.rx_descriptors, length of each host's receive ring")
      ->check(CLI::Range(64, 8192))
      ->capture_default_str();
  app.add_option("--loss", options.loss,
                 "likewise: of packets, once the group has formed; 0.01 is one of a hundred")
      ->check(CLI::Range(0.0, 0.5));
  app.add_option("--collective", options.collective, "likewise: this one alone")
      ->check(CLI::IsMember({"all-reduce", "all-gather", "reduce-scatter", "barrier"}));
  app.add_option("--hop-ns", options.hop_ns, "likewise: from one host's wire to another's")
      ->check(CLI::Range(1, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--bytes", options.bytes, "of a measured op");
  app.add_option("--controller", options.controller,
                 "of --measure scale: static, dctcp or swift alone");
  app.add_option("--swift-target", options.swift_target_us, "of --measure scale, in microseconds")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_flag("--trace", options.trace, "print what happens, line by line");
  app.add_flag("--keep-going", options.keep_going, "do not stop at the first seed that fails");
  app.add_option("--progress", options.progress_s, "print a line every so many seconds");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    app.exit(success);
    options.finished = true;
    return options;
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::kInvalidArgument, error.what());
  }
  if (auto parsed = parse_seeds(seeds, options); !parsed) return tl::unexpected(parsed.error());
  if (!options.controller.empty() && !transport::parse_congestion(options.controller)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--controller {}: static, dctcp or swift", options.controller));
  }
  return options;
}

}  // namespace gradwire::sim
