// SPDX-License-Identifier: BSD-3-Clause
// Runs a fuzz target without libFuzzer, so that any compiler builds it: first every input of the
// corpus, then inputs made of them by random changes, the same ones for the same seed. It knows
// nothing of coverage; what libFuzzer finds (scripts/fuzz.sh) comes into the corpus, and so here.
//
//   TARGET [--seconds S] [--seed N] FILE_OR_FOLDER...
//
// An input ends where an inaccessible page begins, so reading past its end ends the program. The
// input that did it is kept in a file, and the command that runs it again is printed.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/input.h"

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kMaxBytes = 8192;
constexpr std::size_t kPageBytes = 4096;
constexpr int kMutationsMax = 8;

// For the signal handler, which may hardly do anything.
const std::uint8_t* running = nullptr;
std::size_t running_bytes = 0;
std::array<char, 512> kept_as{};
std::array<char, 1024> last_words{};

void on_death(int signal) {
  const int fd = ::open(kept_as.data(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  [[maybe_unused]] ssize_t ignored = ::write(fd, running, running_bytes);
  ::close(fd);
  ignored = ::write(STDERR_FILENO, last_words.data(), std::strlen(last_words.data()));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

class Guarded {
 public:
  Guarded() {
    void* area = ::mmap(nullptr, kMaxBytes + kPageBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FUZZ_CHECK(area != MAP_FAILED);
    end_ = static_cast<std::uint8_t*>(area) + kMaxBytes;
    FUZZ_CHECK(::mprotect(end_, kPageBytes, PROT_NONE) == 0);
  }
  void run(const Bytes& input) {
    running_bytes = std::min(input.size(), kMaxBytes);
    std::uint8_t* const at = end_ - running_bytes;
    std::copy_n(input.begin(), running_bytes, at);
    running = at;
    LLVMFuzzerTestOneInput(at, running_bytes);
  }

 private:
  std::uint8_t* end_;
};

/// splitmix64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  std::size_t below(std::size_t end) { return end == 0 ? 0 : next() % end; }

 private:
  std::uint64_t state_;
};

void mutate(Bytes& input, const std::vector<Bytes>& corpus, Random& random) {
  const auto at = [&] { return static_cast<std::ptrdiff_t>(random.below(input.size() + 1)); };
  const auto piece = [&](const Bytes& from) {
    const auto begin = static_cast<std::ptrdiff_t>(random.below(from.size()));
    const auto rest = static_cast<std::size_t>(std::ssize(from) - begin);
    const auto bytes =
        static_cast<std::ptrdiff_t>(random.below(std::min<std::size_t>(rest, 64)) + 1);
    return Bytes(from.begin() + begin, from.begin() + std::min(begin + bytes, std::ssize(from)));
  };
  if (input.empty()) input.push_back(0);
  switch (random.below(8)) {
    case 0:
      input[random.below(input.size())] ^= static_cast<std::uint8_t>(1u << random.below(8));
      break;
    case 1:
      input[random.below(input.size())] = static_cast<std::uint8_t>(random.next());
      break;
    case 2: {  // a number at its bounds
      constexpr std::array<std::uint8_t, 4> kEdges = {0, 0x7f, 0x80, 0xff};
      const std::size_t begin = random.below(input.size());
      const std::size_t end = std::min(begin + (std::size_t{1} << random.below(4)), input.size());
      const std::uint8_t edge = kEdges[random.below(kEdges.size())];
      for (std::size_t i = begin; i < end; ++i) input[i] = edge;
      break;
    }
    case 3:
      input[random.below(input.size())] += static_cast<std::uint8_t>(random.below(9) - 4);
      break;
    case 4: {
      const auto begin = at();
      const auto bytes = static_cast<std::ptrdiff_t>(random.below(32));
      input.erase(input.begin() + begin,
                  input.begin() + std::min(begin + bytes, std::ssize(input)));
      break;
    }
    case 5: {
      const Bytes bytes = piece(input);
      input.insert(input.begin() + at(), bytes.begin(), bytes.end());
      break;
    }
    case 6: {
      const Bytes& other = corpus[random.below(corpus.size())];
      if (other.empty()) break;
      const Bytes bytes = piece(other);
      input.insert(input.begin() + at(), bytes.begin(), bytes.end());
      break;
    }
    default:
      for (std::size_t n = random.below(16) + 1; n > 0; --n)
        input.insert(input.begin() + at(), static_cast<std::uint8_t>(random.next()));
  }
  if (input.size() > kMaxBytes) input.resize(kMaxBytes);
}

std::vector<std::filesystem::path> files_of(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> files;
  if (!std::filesystem::is_directory(path)) return {path};
  for (const auto& entry : std::filesystem::directory_iterator(path))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 0;
  std::uint64_t seed = 1;
  std::vector<Bytes> corpus;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--seconds" && i + 1 < argc) {
      seconds = std::strtod(argv[++i], nullptr);
    } else if (argument == "--seed" && i + 1 < argc) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else {
      for (const auto& file : files_of(argument)) {
        std::ifstream in(file, std::ios::binary);
        if (!in) {
          std::fprintf(stderr, "%s: cannot be read\n", file.c_str());
          return 2;
        }
        corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
        names.push_back(file.string());
      }
    }
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "usage: %s [--seconds S] [--seed N] FILE_OR_FOLDER...\n", argv[0]);
    return 2;
  }
  const std::string program = std::filesystem::path(argv[0]).filename().string();
  LLVMFuzzerInitialize(&argc, &argv);
  for (const int signal : {SIGABRT, SIGSEGV, SIGFPE, SIGILL}) std::signal(signal, on_death);
  Guarded guarded;
  const auto remember = [&](const std::string& what) {
    std::snprintf(kept_as.data(), kept_as.size(), "%s/crash-%s.bin",
                  std::filesystem::current_path().c_str(), program.c_str());
    std::snprintf(last_words.data(), last_words.size(),
                  "%s ended the program; to run it again: %s %s\n", what.c_str(), argv[0],
                  kept_as.data());
  };
  for (std::size_t i = 0; i < corpus.size(); ++i) {
    remember(names[i]);
    guarded.run(corpus[i]);
  }

  // Machines differ in speed, so the time is bounded, not the number of inputs.
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(seconds));
  std::uint64_t made = 0;
  for (; Clock::now() < end; ++made) {
    remember("input " + std::to_string(made) + " of seed " + std::to_string(seed));
    Random random(seed * 0x100000001b3u + made);
    Bytes input = corpus[random.below(corpus.size())];
    for (std::size_t n = random.below(kMutationsMax) + 1; n > 0; --n) mutate(input, corpus, random);
    guarded.run(input);
  }
  std::printf("%s: %zu inputs of the corpus, %llu made of them with seed %llu\n", program.c_str(),
              corpus.size(), static_cast<unsigned long long>(made),
              static_cast<unsigned long long>(seed));
  return 0;
}
