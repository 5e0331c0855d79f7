#include "core/base/error.h"

namespace stagecoach {

std::string_view short_path(std::string_view file) {
  for (const std::string_view floor : {"/core/", "/nn/", "/datasets/", "/parallel/", "/chapters/", "/tests/"}) {
    if (const auto at = file.rfind(floor); at != std::string_view::npos) {
      return file.substr(at + 1);
    }
  }
  return file;
}

void fail(const std::string& what, const std::source_location& where) {
  throw Error(fmt::format("{} [{}:{}]", what, short_path(where.file_name()), where.line()));
}

}  // namespace stagecoach
