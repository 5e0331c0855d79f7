#include "nn/foreign_files.h"

#include <fmt/format.h>

#include <algorithm>

namespace stagecoach::safetensors {
namespace {

using namespace std::string_view_literals;

constexpr const char* kConvert =
    "load it in Python and save its tensors with the package safetensors, as in safetensors.torch.save_file(tensors, "
    "path)";
constexpr const char* kDownload = "download the file itself";

struct Format {
  std::string_view magic;  ///< the first bytes
  const char* name;
  const char* advice;
};

constexpr Format kFormats[] = {
    {"PK\x03\x04"sv, "a zip archive, as torch.save and numpy.savez write", kConvert},
    {"\x80\x02"sv, "a Python pickle, as torch.save wrote before version 1.6", kConvert},
    {"\x80\x03"sv, "a Python pickle", kConvert},
    {"\x80\x04"sv, "a Python pickle", kConvert},
    {"\x80\x05"sv, "a Python pickle", kConvert},
    {"\x89HDF\r\n\x1a\n"sv, "an HDF5 file, as Keras writes", kConvert},
    {"\x93NUMPY"sv, "a NumPy array", kConvert},
    {"GGUF"sv, "a GGUF file, as llama.cpp reads", "give the safetensors that it was made from"},
    {"\x1f\x8b"sv, "compressed with gzip", "decompress it with gunzip"},
};
constexpr Format kTextFormats[] = {
    {"version https://git-lfs"sv, "a Git LFS pointer, which only names the file", "run git lfs pull in its repository"},
    {"<"sv, "a web page", kDownload},
    {"{"sv, "a JSON text, such as the index of a model in several files", "give the safetensors that it names"},
};

/// As the length of a header, eight such bytes would exceed any file.
bool is_text(std::string_view bytes) {
  return bytes.size() >= 8 && std::all_of(bytes.begin(), bytes.begin() + 8,
                                          [](char c) { return c >= ' ' || c == '\n' || c == '\r' || c == '\t'; });
}

}  // namespace

std::string foreign_format(std::string_view beginning) {
  if (!is_text(beginning) && (beginning.size() < 9 || beginning[8] == '{' || beginning[2] == '\0')) {
    return "";  // the header follows its length, which may begin with any bytes and mostly has two
  }
  const auto match = [&](const auto& formats) -> std::string {
    for (const Format& format : formats) {
      if (beginning.starts_with(format.magic)) {
        return fmt::format("expected safetensors, but it is {}; {}", format.name, format.advice);
      }
    }
    return "";
  };
  return is_text(beginning) ? match(kTextFormats) : match(kFormats);
}

}  // namespace stagecoach::safetensors
