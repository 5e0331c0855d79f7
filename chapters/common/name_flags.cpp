#include "chapters/common/name_flags.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "chapters/common/flag_table.h"

namespace stagecoach {
namespace {

/// What the libraries write, and what the user of a chapter reads instead, where a flag and its parameter differ in
/// more than the dashes.
constexpr std::pair<std::string_view, std::string_view> kFlags[] = {
    {"`except`", "--weights-except"},
    {"`learning_rate`", "--lr"},
    {"`max_pixels`", "--max-megapixels"},
    {"`on_device`", "--data-on-device"},
    {"`stages_per_rank`", "--chunks"},
    {"clock `virtual_time`", "--clock virtual"},
    {"clock `modelled`", "--clock modelled"},
    {"clock `wall`", "--clock wall"},
    {"device `cpu`", "--device cpu"},
    {"device `cuda`", "--device cuda"},
    {"leave out `softmax_head`", "use --head logits"},
    {"the data set `generated`", "--data generated"},
    {"transport `nccl`", "--transport nccl"},
    {"transport `thread`", "--transport thread"},
    {"use `ClassParallel::no`", "leave out --class-parallel"},
    {"use a smaller batch or model", "use a smaller batch (--batch-size) or model"},
    {"versions `stash`", "--versions stash"},
};

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

}  // namespace

std::string name_flags(std::string text) {
  for (const auto& [parameter, flag] : kFlags) {
    replace_all(text, parameter, flag);
  }
  for (const Flag& flag : flag_table()) {
    std::string parameter = flag.name;
    std::replace(parameter.begin(), parameter.end(), '-', '_');
    replace_all(text, "`" + parameter + "`", "--" + flag.name);
  }
  return text;
}

}  // namespace stagecoach
