#include "chapters/common/bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "chapters/common/flags.h"
#include "core/device.h"
#include "core/error.h"
#include "nn/models.h"
#include "parallel/comm/link.h"
#include "parallel/data_parallel/compression.h"
#include "parallel/launch/launch.h"
#include "parallel/launch/mesh.h"
#include "parallel/pipeline/split.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/versions.h"

namespace stagecoach {
namespace {

/// The number that is all of `text`; none if it is not a number, or one that the type cannot hold.
template <class Number>
std::optional<Number> number_from(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

/// "64KiB" as 65536.
std::optional<std::uint64_t> bytes_from(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, unsigned>, 6> kUnits{
      {{"", 0}, {"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}}};
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto number = number_from<std::uint64_t>(text.substr(0, digits));
  const auto* const unit =
      std::find_if(kUnits.begin(), kUnits.end(), [&](const auto& known) { return known.first == text.substr(digits); });
  if (!number || unit == kUnits.end() || *number > std::numeric_limits<std::uint64_t>::max() >> unit->second) {
    return std::nullopt;
  }
  return *number << unit->second;
}

/// The plain form of a text as a value of each kind; none if it is no such value.
class PlainForm {
 public:
  explicit PlainForm(const std::string& text) : text_(text) {}

  std::optional<std::string> as(const WholeNumbers& range) const {
    return within(number_from<std::uint64_t>(text_), range);
  }
  std::optional<std::string> as(const ByteCounts& range) const { return within(bytes_from(text_), range); }
  std::optional<std::string> as(const Numbers& range) const {
    const auto number = number_from<double>(text_);
    const bool fits = number && ((*number >= range.least && *number <= range.most) || (range.or_zero && *number == 0));
    return fits ? std::optional(fmt::format("{}", *number)) : std::nullopt;
  }
  std::optional<std::string> as(const Words& words) const {
    return std::find(words.begin(), words.end(), text_) == words.end() ? std::nullopt : std::optional(text_);
  }

 private:
  template <class Range>
  static std::optional<std::string> within(std::optional<std::uint64_t> number, const Range& range) {
    const bool fits = number && *number >= range.least && *number <= range.most;
    return fits ? std::optional(std::to_string(*number)) : std::nullopt;
  }

  const std::string& text_;
};

std::string described(const WholeNumbers& range) {
  return fmt::format("a whole number from {} to {}", range.least, range.most);
}
std::string described(const ByteCounts& range) {
  return fmt::format("a number of bytes from {} to {}, such as 65536 or 64KiB", range.least, range.most);
}
std::string described(const Numbers& range) {
  return fmt::format("{}a number from {} to {}", range.or_zero ? "0 or " : "", range.least, range.most);
}
std::string described(const Words& words) {
  return words.empty() ? "nothing: this chapter has no such setting"
                       : fmt::format("{}{}", words.size() > 1 ? "one of " : "", fmt::join(words, ", "));
}

/// How the stages of a chapter are balanced.
Words balances(const Chapter& chapter) {
  Words words{"layers", "params", "time"};
  for (const auto& [word, flag] : {std::pair("pipedream", "replicas"), {"plan", "plan"}}) {
    if (chapter.flags.contains(flag)) {
      words.emplace_back(word);
    }
  }
  return words;
}

}  // namespace

Bounds::Bounds(const Chapter& chapter) {
  constexpr std::uint64_t kMaxSteps = std::uint64_t{1} << 30;
  constexpr ByteCounts kBucket{1, std::uint64_t{1} << 40};
  constexpr Numbers kRate{1e-100, 1e100, true};
  table_ = {
      {"max-megapixels", WholeNumbers{1, 700}},  // three bytes per pixel fill the int with which stb_image counts
      {"image-size", WholeNumbers{0, 1024}},
      {"model", model_names()},
      {"head", Words{"logits", "softmax"}},
      {"epochs", WholeNumbers{1, kMaxSteps}},
      {"batch-size", WholeNumbers{1, kMaxBatchSize}},
      {"microbatches", WholeNumbers{1, 1 << 16}},
      {"optimizer", Words{"sgd", "adam"}},
      {"lr", kRate},
      {"momentum", Numbers{0, 0.999999}},
      {"weight-decay", kRate},
      {"lr-warmup", WholeNumbers{0, kMaxSteps}},
      {"lr-discount", WholeNumbers{0, kMaxSteps}},
      {"seed", kAnySeed},
      {"ranks", WholeNumbers{1, kMaxDevices}},
      {"mode", chapter.modes},
      {"mesh", TextOf{[](const std::string& text) { static_cast<void>(mesh_from_text(text)); }}},
      {"bucket-size", kBucket},
      {"first-bucket-size", kBucket},
      {"compress", compression_names()},
      {"versions", chapter.flags.contains("versions") ? version_names() : Words{}},
      {"replicas", TextOf{[](const std::string& text) { static_cast<void>(replicas_from_text(text)); }}},
      {"chunks", WholeNumbers{0, 1024}},
      {"group", WholeNumbers{0, 1 << 16}},
      {"split", TextOf{[](const std::string& text) { static_cast<void>(split_from_text(text)); }}},
      {"balance", balances(chapter)},
      {"receives", TextOf{[](const std::string& text) { static_cast<void>(receives_from_text(text)); }}},
      {"clock", Words{"wall", "virtual"}},
      {"link", TextOf{[](const std::string& text) { static_cast<void>(link_from_text(text)); }}},
      {"transport", Words{"thread", "mpi", "nccl"}},
      {"reduce", Words{"ordered", "native"}},
      {"timeout", Numbers{1e-6, kLongestTimeout}},
      {"device", TextOf{[](const std::string& text) { static_cast<void>(parse_device(text)); }}},
      {"threads", WholeNumbers{1, 1024}},
  };
}

std::string Bounds::summary(const std::string& setting) const {
  const auto row = table_.find(setting);
  if (row == table_.end()) {
    return "";
  }
  return std::visit(
      [](const auto& allowed) -> std::string {
        using Kind = std::decay_t<decltype(allowed)>;
        if constexpr (std::is_same_v<Kind, TextOf>) {
          return "";
        } else if constexpr (std::is_same_v<Kind, Words>) {
          return fmt::format("{{{}}}", fmt::join(allowed, ","));
        } else {
          return fmt::format("{} to {}", allowed.least, allowed.most);
        }
      },
      row->second);
}

std::string Bounds::check(const std::string& setting, std::string& text) const {
  const auto row = table_.find(setting);
  return row == table_.end() ? "" : stagecoach::check(row->second, text);
}

std::string check(const Allowed& allowed, std::string& text) {
  return std::visit(
      [&](const auto& kind) -> std::string {
        if constexpr (std::is_same_v<std::decay_t<decltype(kind)>, TextOf>) {
          try {
            kind.read(text);
            return "";
          } catch (const UsageError& error) {
            return error.what();
          }
        } else {
          const std::optional<std::string> plain = PlainForm(text).as(kind);
          if (!plain) {
            return fmt::format("expected {}, got '{}'", described(kind), text);
          }
          text = *plain;
          return "";
        }
      },
      allowed);
}

}  // namespace stagecoach
