#include "chapters/08_tensor_parallel/lab/conjugate.h"
#include "chapters/08_tensor_parallel/lab/linear_pair.h"
#include "tests/labs/lab8.h"
#include "tests/labs/run_lab.h"

int main(int argc, char** argv) {
  using namespace stagecoach;
  return labs::run_lab(argc, argv, 8, [] {
    return labs::lab8::criteria({.copy_to_ranks = lab::copy_to_ranks,
                                 .sum_over_ranks = lab::sum_over_ranks,
                                 .cut_pair = lab::cut_pair,
                                 .pair_forward = lab::pair_forward});
  });
}
