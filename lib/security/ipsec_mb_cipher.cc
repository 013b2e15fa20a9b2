// SPDX-License-Identifier: BSD-3-Clause
// AES-GCM by ipsec-mb. Its functions take a key and a context and share nothing else, so one table
// of them serves all threads.
#include <fmt/format.h>
#include <intel-ipsec-mb.h>

#include "base/require.h"
#include "security/cipher_states.h"
#include "security/raw.h"

namespace gradwire::security {
namespace {

/// Of those that all releases since 1.3 have.
const char* name_of_arch(IMB_ARCH arch) {
  if (arch == IMB_ARCH_AVX512) return "AVX-512";
  return arch == IMB_ARCH_AVX2 ? "AVX2" : "less than AVX2";
}

struct Library {
  IMB_MGR* functions = nullptr;
  IMB_ARCH arch = IMB_ARCH_NONE;
};

/// Chosen by what the CPU has, once.
const Library& library() {
  static const Library kLibrary = [] {
    Library made;
    // Releases before 2.0 would emulate AES then, others have no code for it.
    if (!cpu_has_aes()) return made;
    IMB_MGR* manager = alloc_mb_mgr(0);
    if (manager == nullptr) return made;
    init_mb_mgr_auto(manager, &made.arch);
    if (imb_get_errno(manager) != 0 || made.arch == IMB_ARCH_NONE) {
      free_mb_mgr(manager);
      return Library{};
    }
    made.functions = manager;
    return made;
  }();
  return kLibrary;
}

class IpsecMbState final : public PacketKey::State {
 public:
  explicit IpsecMbState(const SecretBytes<16>& key) : functions_(library().functions) {
    IMB_AES128_GCM_PRE(functions_, raw(key.span().data()), &key_);
  }

  void seal(Mode mode, const Nonce& nonce, Header header, Segments payload, std::byte* out,
            Tag tag) noexcept override {
    gcm_context_data context;
    const auto data = header_data(header);
    std::byte* crc = header.data() + kPayloadCrcAt;
    if (mode == Mode::kEncrypt) {
      IMB_AES128_GCM_INIT(functions_, &key_, &context, raw(nonce.data()), raw(data.data()),
                          data.size());
      for (const auto piece : payload) {
        IMB_AES128_GCM_ENC_UPDATE(functions_, &key_, &context, raw(out), raw(piece.data()),
                                  piece.size());
        out += piece.size();
      }
      IMB_AES128_GCM_ENC_UPDATE(functions_, &key_, &context, raw(crc), raw(crc), 4);
      IMB_AES128_GCM_ENC_FINALIZE(functions_, &key_, &context, raw(tag.data()), tag.size());
    } else {
      begin_mac(context, nonce, data);
      for (const auto piece : payload) {
        copy_piece(out, piece);
        IMB_AES128_GMAC_UPDATE(functions_, &key_, &context, raw(out), piece.size());
        out += piece.size();
      }
      end_mac(context, crc, tag);
    }
    clear(std::as_writable_bytes(std::span(&context, 1)));
  }

  bool open(Mode mode, const Nonce& nonce, Header header, std::span<const std::byte> sealed,
            std::byte* out, TagIn tag) noexcept override {
    gcm_context_data context;
    const auto data = header_data(header);
    std::byte* crc = header.data() + kPayloadCrcAt;
    std::array<std::byte, kTagBytes> right;
    bool fits = false;
    if (mode == Mode::kEncrypt) {
      IMB_AES128_GCM_INIT(functions_, &key_, &context, raw(nonce.data()), raw(data.data()),
                          data.size());
      IMB_AES128_GCM_DEC_UPDATE(functions_, &key_, &context, raw(out), raw(sealed.data()),
                                sealed.size());
      IMB_AES128_GCM_DEC_UPDATE(functions_, &key_, &context, raw(crc), raw(crc), 4);
      IMB_AES128_GCM_DEC_FINALIZE(functions_, &key_, &context, raw(right.data()), right.size());
      fits = equal_in_constant_time(tag, right);
      if (!fits) [[unlikely]] {
        clear({out, sealed.size()});
        clear({crc, 4});
      }
    } else {
      begin_mac(context, nonce, data);
      IMB_AES128_GMAC_UPDATE(functions_, &key_, &context, raw(sealed.data()), sealed.size());
      end_mac(context, crc, right);
      fits = equal_in_constant_time(tag, right);
      if (fits) copy_piece(out, sealed);
    }
    // The tag that would have been right is a forger's.
    clear(right);
    clear(std::as_writable_bytes(std::span(&context, 1)));
    return fits;
  }

 private:
  void begin_mac(gcm_context_data& context, const Nonce& nonce,
                 std::span<const std::byte> data) noexcept {
    IMB_AES128_GMAC_INIT(functions_, &key_, &context, raw(nonce.data()), nonce.size());
    IMB_AES128_GMAC_UPDATE(functions_, &key_, &context, raw(data.data()), data.size());
  }
  void end_mac(gcm_context_data& context, const std::byte* crc, Tag tag) noexcept {
    IMB_AES128_GMAC_UPDATE(functions_, &key_, &context, raw(crc), 4);
    IMB_AES128_GMAC_FINALIZE(functions_, &key_, &context, raw(tag.data()), tag.size());
  }

  IMB_MGR* functions_;
  gcm_key_data key_;
};

}  // namespace

std::unique_ptr<PacketKey::State> make_ipsec_mb_state(const SecretBytes<16>& key) {
  if (library().functions == nullptr) return nullptr;
  return std::make_unique<IpsecMbState>(key);
}

std::size_t ipsec_mb_state_bytes() { return sizeof(IpsecMbState); }

std::string ipsec_mb_text() {
  if (library().functions == nullptr) return {};
  // "v1.3.0"; some builds say "1.3.0".
  std::string version = imb_get_version_str();
  if (!version.empty() && version.front() == 'v') version.erase(0, 1);
  return fmt::format("ipsec-mb {} ({})", version, name_of_arch(library().arch));
}

}  // namespace gradwire::security
