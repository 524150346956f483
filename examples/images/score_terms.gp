# Draws score_terms.png, the softcap and ALiBi of chapter 13: gnuplot score_terms.gp
set terminal pngcairo size 1000,420 font 'Sans,12' background rgb 'white'
set output 'score_terms.png'
set style line 1 lc rgb '#0072b2' lw 2
set style line 2 lc rgb '#d55e00' lw 2
set style line 3 lc rgb '#a0a0a0' lw 1 dt 2
set border 3 lc rgb '#404040'
set tics nomirror
set grid lc rgb '#e0e0e0' lw 1
set samples 400
set multiplot layout 1,2

set title 'softcap 50'
set xlabel 'score s'
set ylabel 't'
set y2label 'dt/ds'
set y2tics nomirror
set border 11
set xrange [0:200]
set yrange [0:60]
set y2range [0:1.2]
set key center right
plot x with lines ls 3 title 's', 50 * tanh(x / 50) with lines ls 1 title 't', \
     1 - tanh(x / 50)**2 axes x1y2 with lines ls 2 title 'dt/ds'

set title 'ALiBi, 8 heads: weight against that of the own key'
set xlabel 'distance |p - j|'
set ylabel 'exp(-slope · distance)'
unset y2label
unset y2tics
set border 3
set xrange [1:1000]
set yrange [0:1.05]
set logscale x
unset key
do for [h=0:7] { set label sprintf('1/%d', 2**(h + 1)) at 1.1 * log(2) * 2**(h + 1), 0.5 font ',8' }
plot for [h=0:7] exp(-2.0**(-h - 1) * x) with lines ls 1
unset multiplot
