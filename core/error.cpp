#include "core/error.h"

#include <string_view>

namespace stagecoach {

void fail(const std::string& what, const std::source_location& where) {
  std::string_view file = where.file_name();
  // A reader wants "core/ops/conv2d.cpp", not the path of the machine that compiled it.
  for (std::string_view floor : {"/core/", "/nn/", "/datasets/", "/parallel/", "/chapters/", "/tests/"}) {
    if (const auto at = file.rfind(floor); at != std::string_view::npos) {
      file.remove_prefix(at + 1);
      break;
    }
  }
  throw Error(fmt::format("{} [{}:{}]", what, file, where.line()));
}

}  // namespace stagecoach
