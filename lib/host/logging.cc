// SPDX-License-Identifier: BSD-3-Clause
#include "host/logging.h"

#include <fmt/format.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <array>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "host/output.h"

namespace gradwire::host {
namespace {

/// The level's color on a terminal, as spdlog's own sink has it.
std::string_view color_of(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::debug:
      return "\033[36m";
    case spdlog::level::info:
      return "\033[32m";
    case spdlog::level::warn:
      return "\033[33m\033[1m";
    case spdlog::level::err:
      return "\033[31m\033[1m";
    default:
      return "";
  }
}

class OutputSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit OutputSink(Output& output) : output_(output) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    const std::string_view line(text.data(), text.size());
    const std::size_t from = message.color_range_start;
    const std::size_t to = message.color_range_end;
    if (!output_.is_terminal() || from >= to || to > line.size()) return output_.write(line);
    output_.write(fmt::format("{}{}{}\033[m{}", line.substr(0, from), color_of(message.level),
                              line.substr(from, to - from), line.substr(to)));
  }
  void flush_() override { output_.flush(); }

 private:
  Output& output_;
};

ssize_t write_log(void* /*cookie*/, const char* text, std::size_t bytes) {
  standard_error().write({text, bytes});
  return static_cast<ssize_t>(bytes);
}

}  // namespace

Result<void> set_up_logging(std::string_view level) {
  constexpr std::array kLevels = {
      std::pair{"trace", spdlog::level::trace}, std::pair{"debug", spdlog::level::debug},
      std::pair{"info", spdlog::level::info},   std::pair{"warn", spdlog::level::warn},
      std::pair{"error", spdlog::level::err},
  };
  for (const auto& [name, value] : kLevels) {
    if (level != name) continue;
    auto logger = std::make_shared<spdlog::logger>("gradwire",
                                                   std::make_shared<OutputSink>(standard_error()));
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %^%l%$ %v");
    logger->set_level(value);
    spdlog::set_default_logger(std::move(logger));
    return {};
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("log level \"{}\": must be trace, debug, info, warn or error", level));
}

std::FILE* log_stream() {
  cookie_io_functions_t functions{};
  functions.write = write_log;
  std::FILE* const stream = ::fopencookie(nullptr, "w", functions);
  // A line at a time, so that lines are dropped whole.
  if (stream != nullptr) std::setvbuf(stream, nullptr, _IOLBF, BUFSIZ);
  return stream;
}

}  // namespace gradwire::host
