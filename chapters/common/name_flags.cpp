#include "chapters/common/name_flags.h"

#include <string_view>
#include <utility>

namespace stagecoach {
namespace {

/// What the libraries write, and what the user of a chapter reads instead.
constexpr std::pair<std::string_view, std::string_view> kFlags[] = {
    {"`accept_new_data`", "--accept-new-data"},
    {"`context`", "--context"},
    {"`data`", "--data"},
    {"`depth`", "--depth"},
    {"`dropout`", "--dropout"},
    {"`epochs`", "--epochs"},
    {"`find_unused`", "--find-unused"},
    {"`group`", "--group"},
    {"`heads`", "--heads"},
    {"`learning_rate`", "--lr"},
    {"`max_pixels`", "--max-megapixels"},
    {"`microbatches`", "--microbatches"},
    {"`on_device`", "--data-on-device"},
    {"`out`", "--out"},
    {"`ranks`", "--ranks"},
    {"`resume`", "--resume"},
    {"`schedule`", "--schedule"},
    {"`split`", "--split"},
    {"`stages_per_rank`", "--chunks"},
    {"`timeout`", "--timeout"},
    {"`transport`", "--transport"},
    {"`width`", "--width"},
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

}  // namespace

std::string name_flags(std::string text) {
  for (const auto& [parameter, flag] : kFlags) {
    for (auto at = text.find(parameter); at != std::string::npos; at = text.find(parameter, at + flag.size())) {
      text.replace(at, parameter.size(), flag);
    }
  }
  return text;
}

}  // namespace stagecoach
