#include "parallel/pipeline/weight_versions.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace stagecoach {

WeightVersions::WeightVersions(NamedTensors parameters, const Schedule& schedule, const Ledger& ledger, int rank)
    : parameters_(std::move(parameters)),
      versions_(ledger[static_cast<std::size_t>(rank)]),
      last_uses_(last_uses(schedule, ledger, rank)) {
  kept_[0] = {};  // there is a version also of a stage without parameters
  for (const auto& [name, parameter] : parameters_) {
    kept_[0].push_back(parameter.detach());
  }
}

void WeightVersions::begin(std::size_t place) {
  if (versions_[place] == kNoVersion) {
    return;
  }
  if (versions_[place] > newest_) {  // only an update makes a new one
    advance(place);
  }
  use(versions_[place]);
}

void WeightVersions::end(std::size_t place) {
  const auto freed =
      std::erase_if(kept_, [&](const auto& kept) { return kept.first != newest_ && !needed_after(kept.first, place); });
  if (freed > 0) {
    use(newest_);  // the parameters may still name what is freed
  }
}

bool WeightVersions::needed_after(int version, std::size_t place) const {
  return last_uses_[static_cast<std::size_t>(version)] > place;
}

void WeightVersions::use(int version) {
  const auto found = kept_.find(version);
  STAGECOACH_CHECK(found != kept_.end(), "weights: version {} is not there; the newest is {}", version, newest_);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].second.rebind(found->second[i]);
  }
}

void WeightVersions::advance(std::size_t place) {
  auto next = kept_.extract(newest_);
  if (needed_after(newest_, place)) {
    kept_[newest_] = next.mapped();
    for (Tensor& tensor : next.mapped()) {
      tensor = tensor.clone();
    }
  }
  next.key() = ++newest_;
  kept_.insert(std::move(next));
  peak_ = std::max(peak_, kept_.size());
}

}  // namespace stagecoach
