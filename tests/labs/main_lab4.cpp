#include "chapters/04_pipedream/lab/one_f_one_b.h"
#include "chapters/04_pipedream/lab/version_store.h"
#include "tests/labs/lab4.h"
#include "tests/labs/run_lab.h"

int main(int argc, char** argv) {
  using namespace stagecoach;
  return labs::run_lab(argc, argv, 4, [] {
    return labs::lab4::criteria({.one_f_one_b = lab::one_f_one_b,
                                 .weights_for_forward = lab::weights_for_forward,
                                 .weights_for_backward = lab::weights_for_backward,
                                 .update = lab::update});
  });
}
