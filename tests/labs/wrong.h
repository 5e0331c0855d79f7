#pragma once
/// @file
/// Plausible wrong answers to the labs, and the criterion on which each must lose points.

#include <string>
#include <vector>

namespace stagecoach::labs {

template <class Answer>
struct WrongAnswer {
  std::string name;       ///< "warm_up_too_long"
  std::string mistake;    ///< one sentence: "The warm-up has one forward too many."
  std::string criterion;  ///< the name of the criterion
  Answer answer;
};

}  // namespace stagecoach::labs
