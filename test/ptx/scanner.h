// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The characters and words of a PTX text. Private to the parser; throws std::runtime_error with
/// the line.
#pragma once

#include <cctype>
#include <charconv>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gradwire::ptx {

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  [[nodiscard]] bool at_end() {
    skip();
    return at_ == text_.size();
  }
  [[nodiscard]] std::uint32_t line() const { return line_; }

  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error("PTX line " + std::to_string(line_) + ": " + what);
  }

  void skip() {
    while (at_ < text_.size()) {
      if (text_[at_] == '\n') ++line_;
      if (std::isspace(static_cast<unsigned char>(text_[at_])) != 0) {
        ++at_;
      } else if (text_.substr(at_, 2) == "//") {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else {
        return;
      }
    }
  }
  char peek() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!take(wanted)) fail(std::string("expected '") + wanted + "', not '" + peek() + "'");
  }
  std::string_view word() {
    skip();
    const std::size_t start = at_;
    if (at_ < text_.size() && text_[at_] == '-') ++at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    if (at_ == start) fail(std::string("expected a word, not '") + peek() + "'");
    return text_.substr(start, at_ - start);
  }
  std::uint32_t number() {
    const std::string_view digits = word();
    std::uint32_t value = 0;
    const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    if (end != digits.data() + digits.size()) fail("not a number: " + std::string(digits));
    return value;
  }
  void skip_line() {
    while (at_ < text_.size() && text_[at_] != '\n') ++at_;
  }
  void skip_past(char wanted) {
    while (at_ < text_.size() && text_[at_] != wanted) ++at_;
    expect(wanted);
  }

 private:
  static bool is_word(char c) noexcept {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' ||
           c == '.';
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::uint32_t line_ = 1;
};

}  // namespace gradwire::ptx
