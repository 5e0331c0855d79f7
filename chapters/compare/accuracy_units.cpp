#include "chapters/compare/accuracy_units.h"

#include <algorithm>

#include "core/base/throw_if.h"

namespace stagecoach {

void convert_percentages(const std::vector<double*>& accuracies, const std::string& where, RunRecord& run) {
  constexpr double kMaxShare = 1 + 1e-6;  // 1 as a float, rounded
  double share = 0;                       // one of those that were found, if any
  double percentage = 0;
  for (const double* accuracy : accuracies) {
    throw_if<DataError>(*accuracy < 0 || *accuracy > 100,
                        "{}: an accuracy is out of range: expected a share from 0 to 1, or a percentage up to 100, got "
                        "{}; correct it",
                        where, *accuracy);
    if (*accuracy > kMaxShare) {
      percentage = *accuracy;
    } else if (*accuracy > 0) {
      share = *accuracy;
    }
  }
  throw_if<DataError>(
      share > 0 && percentage > 0,
      "{}: the accuracies have different units: expected all from 0 to 1, or all in percent, got {} and "
      "{}; write percentages with their sign, as in 26%",
      where, share, percentage);
  if (percentage > 0) {
    std::for_each(accuracies.begin(), accuracies.end(), [](double* accuracy) { *accuracy /= 100; });
    run.notes.push_back("its accuracies are above 1, so they were read as percentages");
  }
}

}  // namespace stagecoach
