#include "chapters/02_naive_model_parallel/lab/batch_step.h"
#include "chapters/02_naive_model_parallel/lab/shift.h"
#include "tests/labs/lab2.h"
#include "tests/labs/run_lab.h"

int main(int argc, char** argv) {
  using namespace stagecoach;
  return labs::run_lab(argc, argv, 2,
                       [] { return labs::lab2::criteria({.shift = lab::shift, .batch_step = lab::batch_step}); });
}
