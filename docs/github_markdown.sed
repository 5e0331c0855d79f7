# From Markdown as GitHub shows it to Markdown as Doxygen reads it. The pages are written for GitHub.

# Formulas of their own: ```math … ```. Other blocks of code stay as they are.
/^ *```math *$/,/^ *``` *$/{
  s/^ *```math *$/\\f[/
  s/^ *``` *$/\\f]/
  b
}
/^ *```/,/^ *``` *$/b

# Formulas within a line: $`a + b`$.
s/\$`\([^`]*\)`\$/\\f$\1\\f$/g

# A part that folds is shown unfolded.
s/<summary>\(.*\)<\/summary>/**\1**/
s/<\/*details>//g

# Links to pages and pictures stay (marked by {{ meanwhile), without the place on the page. Of other links within the
# project only the text stays: Doxygen links the name of a source file by itself.
s/\](\([^(): ]*\.md\)\(#[^) ]*\)*)/]{{\1)/g
s/!\[\([^]]*\)\](/![\1]{{/g
s/\[\([^]][^]]*\)\]([^(): ]*)/\1/g
s/\]{{/](/g
